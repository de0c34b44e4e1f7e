"""Writes tests/data/template/more_snippets.json: small templates and what the reference implementation makes of them.

usage: make_template_cases.py [--out FILE]      (needs jinja2 3.1.6; the cases are in template_cases.py)

The environment is set up as transformers 5.24 does it: immutable sandbox, trim_blocks, lstrip_blocks, loop controls, a generation tag,
tojson = json.dumps without escaping of HTML, raise_exception, strftime_now, and a namespace that refuses names with an underscore in front."""

import argparse
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

import template_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Generation(jinja2.ext.Extension):
    """{% generation %} shows its body; the reference marks the place for training."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller):
        return caller()


class ChatNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            ChatNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        ChatNamespace.check(name)
        super().__setitem__(name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"the name {name!r} is refused")


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class MakeDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    env.globals["dict"] = MakeDict()
    env.globals["namespace"] = ChatNamespace
    return env


def run(env, template, context):
    """-> {"text": ...} or {"error_type": ..., "error": text given to raise_exception or None}"""
    try:
        text = env.from_string(template).render(**context)
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # every kind counts
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error_type": type(error).__name__, "error": str(error) if raised else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(ROOT / "tests/data/template/more_snippets.json"))
    arguments = parser.parse_args()
    env = environment()
    rows = []
    for topic, cases in template_cases.CASES.items():
        for number, (template, context) in enumerate(cases, 1):
            rows.append({"name": f"{topic}-{number}", "template": template, "context": context, **run(env, template, context)})
    out = pathlib.Path(arguments.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    note = "made by tools/make_template_cases.py; error: only the fact of failure counts, except the text of raise_exception"
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    out.write_text(f'{{"note": {json.dumps(note)}, "jinja2": "{jinja2.__version__}", "snippets": [\n{lines}\n]}}\n', encoding="utf-8")
    print(len(rows), "snippets,", sum("error_type" in row for row in rows), "of them errors")


if __name__ == "__main__":
    main()
