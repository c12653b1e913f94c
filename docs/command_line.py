"""Writes `docs/command-line.md` from the table of commands and their parameters: python docs/command_line.py"""
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from paranmt_lab.cli.commands import COMMANDS, GROUPS, PANELS, load_command

PAGE = Path(__file__).parent / 'command-line.md'
HEAD = """# Command line

`paranmt COMMAND --help` has what this page says; the page is written from the same source by `docs/command_line.py`.

- **Order**: the source first, the new name last, as `cp` has it: `paranmt train pairs word`.
- **Settings**: a command shows those that people change as options. All fields of its config are set by `--set optimizer.clip=1` or by `--config FILE.toml`, and `--options` lists them with default, values and meaning. A file comes first, then `--set`, then the options. The folder of a run has its settings as `config.toml`.
- **Again**: every stage resumes when the same command is given again, and finished work is not repeated. `paranmt workspace script NAME` prints the commands by which a thing was made.
- **Codes**: 0 done, 1 error, 2 not understood (nothing was started), 130 stopped.
- **Completion**: `paranmt --install-completion` installs it for your shell.
- **Measures** have groups (`lengths`, `overlaps`, ...): `paranmt score --list` shows them.
"""


def table(params):
    "Arguments and options of a command as a table in Markdown."
    rows = []
    for p in params:
        name = p.make_metavar(None).strip('{}') if p.param_type_name == 'argument' else ', '.join([*p.opts, *p.secondary_opts])
        value = f' {p.metavar}' if p.param_type_name == 'option' and p.metavar else ''
        meaning = re.sub(r'([|<>])', r'\\\1', p.help or '')
        rows.append(f'| `{name.strip()}{value}` | {meaning} |'.replace('FILE|', 'FILE\\|'))
    return '| | |\n|---|---|\n' + ''.join(f'{row}\n' for row in rows)


def section(words, level):
    "A command: its sentence, an example, its parameters."
    command, row = load_command(words), COMMANDS[words]
    arguments = ' '.join(f'[{name}]' if not p.required else name for p in command.params if p.param_type_name == 'argument'
                         for name in [p.name.strip('_').upper()])
    details = command.help.partition('\n\n')[2].strip()
    params = [p for p in command.params if p.name not in ('set_', 'config_', 'options_')]
    text = f"{'#' * level} paranmt {' '.join(filter(None, (words, arguments)))}\n\n{row.help} {details}\n\n"
    text += f'```sh\n{row.example}\n```\n\n{table(params) if params else ""}'
    return text + ('\nMore settings: `--options`.\n' if command.takes else '')


def page():
    "The whole page."
    parts = [HEAD]
    for panel, names in PANELS.items():
        parts.append(f'## {panel}\n')
        for name in names.split():
            if name not in GROUPS:
                parts.append(section(name, 3))
                continue
            parts.append(f'### paranmt {name}\n\n{GROUPS[name]}\n')
            parts += [section(words, 4) for words in COMMANDS if words.startswith(f'{name} ')]
    return '\n'.join(parts).rstrip() + '\n'


def examples():
    "The words of each example of the page."
    return [shlex.split(row.example)[1:] for row in COMMANDS.values()]


if __name__ == '__main__': PAGE.write_text(page(), encoding='utf-8')
