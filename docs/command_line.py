"""Writes `docs/command-line.md` from the table of commands and their parameters: python docs/command_line.py"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from paranmt_lab.cli.commands import COMMANDS, GROUPS, PANELS, load_command

PAGE = Path(__file__).parent / 'command-line.md'
HEAD = """# Command line

`paranmt COMMAND --help` has what this page says; the page is written from the same source by `docs/command_line.py`.

- **Order**: the source first, the new name last, as `cp` has it: `paranmt train pairs word`.
- **Settings**: a command shows those that people change as options. All fields of its config are set by
  `--set optimizer.clip=1` or by `--config FILE.toml`, and `--options` lists them with default, values and meaning. A
  file comes first, then `--set`, then the options. The folder of a run has its settings as `config.toml`.
- **Again**: every stage resumes when the same command is given again, and finished work is not repeated.
  `paranmt workspace script NAME` prints the commands by which a thing was made.
- **Codes**: 0 done, 1 error, 2 not understood (nothing was started), 130 stopped.
- **Completion**: `paranmt --install-completion` installs it for your shell.
- **Measures** have groups (`lengths`, `overlaps`, ...): `paranmt score --list` shows them.
"""


def _name(p):
    "The words of an argument or option, as the help has them."
    if p.param_type_name == 'argument': return p.name.strip('_').upper()
    return ', '.join([*p.opts, *p.secondary_opts]).strip() + (f' {p.metavar}' if p.metavar else '')


def table(params):
    "Arguments and options of a command as a table in Markdown."
    cell = lambda text: text.replace('|', '\\|').replace('<', '&lt;')
    rows = [f'| `{cell(_name(p))}` | {cell(p.help or "")} |\n' for p in params]
    return '| | |\n|---|---|\n' + ''.join(rows) if rows else ''


def section(words, level):
    "A command: its sentence, an example, its parameters."
    command, row = load_command(words), COMMANDS[words]
    arguments = [p for p in command.params if p.param_type_name == 'argument']
    usage = ' '.join(['paranmt', words, *(_name(p) if p.required else f'[{_name(p)}]' for p in arguments)])
    details = command.help.partition('\n\n')[2].strip()
    params = [p for p in command.params if p.name not in ('set_', 'config_', 'options_')]
    more = '\nMore settings: `--options`.\n' if command.takes else ''
    return f"{'#' * level} {usage}\n\n{row.help} {details}\n\n```sh\n{row.example}\n```\n\n{table(params)}{more}"


def page():
    "The whole page."
    parts = [HEAD]
    for panel, names in PANELS.items():
        parts.append(f'## {panel}\n')
        for name in names.split():
            if name in GROUPS: parts.append(f'### paranmt {name}\n\n{GROUPS[name]}\n')
            inner = [words for words in COMMANDS if words == name or words.startswith(f'{name} ')]
            parts += [section(words, 4 if name in GROUPS else 3) for words in inner]
    return '\n'.join(parts).rstrip() + '\n'


if __name__ == '__main__': PAGE.write_text(page(), encoding='utf-8')
