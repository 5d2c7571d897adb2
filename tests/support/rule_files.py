"""The workflow's rules as text; the loop over analyses stands as the rules that it makes."""

import re
import textwrap

from checkout import ROOT
from rewind.analyses import analysis_rules
from rewind.analyses.base import Rule


def rule_files() -> dict[str, str]:
    """Name of a file of rules → its text."""
    return {path.name: _unrolled(path.read_text()) for path in sorted((ROOT / "workflow/rules").glob("*.smk"))}


def rules_text() -> str:
    """All of them."""
    return "\n".join(rule_files().values())


def _unrolled(text: str) -> str:
    head, loop, body = text.partition("for analysis_rule in analysis_rules().values():\n")
    body = textwrap.dedent(body).strip()
    body = body[body.find("rule:") :]
    return head + "\n\n\n".join(_rule_text(body, rule) for rule in analysis_rules().values()) + "\n" * bool(loop)


def _rule_text(body: str, rule: Rule) -> str:
    text = re.sub(r"^rule:\n    name:\n.*\n", f"rule {rule.name}:\n", body)
    text = text.replace("plan.analysis_memory(analysis_rule)", f"job(compute.{rule.memory}_memory)")
    pictures = {suffix: f"figures/{rule.picture}.{suffix}" for suffix in ("png", "pdf", "svg") if rule.picture}
    named = [f'{name}{"=" * bool(name)}"results/{{study}}/{file}",' for name, file in rule.output.items()]
    outputs = "\n".join(f"        {one}" for one in [*(f'"results/{{study}}/{p}",' for p in pictures.values()), *named])
    text = re.sub(r"^        \*unnamed,\n        \*\*named,", outputs, text, flags=re.M)
    text = re.sub(r'f"(results/.*)"', lambda m: f'"{m[1]}"'.replace("{{", "{").replace("}}", "}"), text)
    for field, value in {**vars(rule), "log_name": rule.log_name}.items():
        text = text.replace(f"{{analysis_rule.{field}}}", str(value))
    return text.replace("(analysis_rule)", f"({rule.name})")
