"""Jinja2 set up as transformers sets it up for chat templates (written from its documented behaviour)."""

import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %}..{% endgeneration %} prints its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = jinja2.nodes.CallBlock(self.call_method("body_of"), [], [], body)
        return call.set_lineno(line)

    def body_of(self, caller):
        return caller()


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(str(message))


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime.datetime.now().strftime(fmt)
    return env


class Failed(Exception):
    pass


@functools.lru_cache(maxsize=16)
def compiled(source):
    return environment().from_string(source)


def render(source, messages, tools=None, **variables):
    variables.setdefault("add_generation_prompt", True)
    try:
        return compiled(source).render(messages=messages, tools=tools, documents=None, **variables)
    except (Raised, jinja2.TemplateError, TypeError, ValueError, AttributeError, OverflowError, IndexError, KeyError) as e:
        raise Failed(repr(e)) from e
