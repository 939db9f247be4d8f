"""Operators by name, and what they may be told."""

import subprocess
import sys


def test_only_the_modules_of_named_operators_are_imported() -> None:
    code = (
        "import sys; from joblens.data.registry import lookup; lookup.find('text_length_filter');"
        "print([m for m in sys.modules if m.startswith('joblens.data.operators.')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['joblens.data.operators.length_filters']"
