// The same for the clients in JavaScript: see checks.py.
import assert from 'node:assert/strict';

export const TINY = process.env.PERGOLA_TINY, ECHO = process.env.PERGOLA_ECHO;
export { assert };

export async function main(client, checks) {
  let failed = 0;
  for (const [name, run] of Object.entries(checks)) {
    try {
      await run();
      console.log(`passed ${client}: ${name.replaceAll('_', ' ')}`);
    } catch (why) {
      failed++;
      console.error(why);
      console.log(`FAILED ${client}: ${name.replaceAll('_', ' ')}: ${String(why?.message ?? why).slice(0, 300).replaceAll('\n', ' ')}`);
    }
  }
  process.exit(failed > 0 ? 1 : 0);
}

export const CALL = '<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>';
