"""A command of `paranmt` in the process of a test: one of its own would take seconds to import everything again."""
import io
import os
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from paranmt_lab.cli.main import main


def paranmt(line, **variables):
    "Run a command, a text or a list of words, with variables of the environment: its code and what it said."
    words = shlex.split(line) if isinstance(line, str) else [str(word) for word in line]
    out, err = io.StringIO(), io.StringIO()
    with (patch.dict(os.environ, variables), patch.object(sys, 'argv', ['paranmt', *words]),
          redirect_stdout(out), redirect_stderr(err)):
        try: main()
        except SystemExit as end: code = end.code or 0
        else: code = 0
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())
