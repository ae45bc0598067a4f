"""What the Python client checks share: a list of named checks, run one after the other; a line for each, and the exit code
says whether all held. Servers: PERGOLA_TINY (the golden checkpoint, computed) and PERGOLA_ECHO (answers what it is asked),
both http://HOST:PORT/v1."""

import os
import sys
import traceback

TINY = os.environ.get("PERGOLA_TINY", "")
ECHO = os.environ.get("PERGOLA_ECHO", "")
_checks = []


def check(function):
    _checks.append(function)
    return function


def main(client):
    failed = 0
    for function in _checks:
        name = f"{client}: {function.__name__.replace('_', ' ')}"
        try:
            function()
            print(f"passed {name}", flush=True)
        except Exception as why:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}: {type(why).__name__}: {str(why)[:300]}", flush=True)
    sys.exit(failed > 0)
