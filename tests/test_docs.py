"""The pages for those who contribute: their examples run, their files are named as they are, their versions agree."""
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import paranmt_lab

ROOT = Path(__file__).parents[1]


def text(name): return (ROOT / name).read_text(encoding='utf-8')


def test_the_examples_of_how_to_add_run(tmp_path):
    program = '\n'.join(re.findall(r'^```python\n(.*?)^```', text('docs/how-to-add.md'), re.S | re.M))
    assert program.count('assert ') == 6, 'an example for each of the six sections'
    (tmp_path / 'examples.py').write_text(program, encoding='utf-8')  # Streamlit reads a page's source from its file
    done = subprocess.run([sys.executable, tmp_path / 'examples.py'], cwd=ROOT, capture_output=True, text=True,
                          env=os.environ | dict(PARANMT_WORKSPACE=str(tmp_path), PARANMT_WORKERS='1'))
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def diagrams(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'docs')
    return importlib.import_module('diagrams')


def test_every_diagram_has_its_picture(diagrams):
    found = dict(diagrams.diagrams())
    assert len(found) > 5
    lacking = [name for name, source in found.items() if not diagrams.picture_of(source)]
    assert lacking == [], 'draw them: python docs/diagrams.py'
    assert sorted(found) == sorted(path.stem for path in diagrams.PICTURES.glob('*.svg'))
    source = found['project.lineage']
    page = diagrams.with_pictures(f'before\n\n```mermaid\n{source}```\n\nafter', '../docs/images/diagrams')
    assert '](../docs/images/diagrams/project.lineage.svg)' in page and 'mermaid' not in page
    assert diagrams.with_pictures('```mermaid\nflowchart LR\n  new\n```', '.').startswith('```mermaid')  # not drawn


def test_every_picture_is_made_by_a_program_and_shown():
    "`tests/screenshots.py` lists them. One that nothing draws anew grows old, one that no page shows is ballast."
    from screenshots import DRAWN, SHOWN
    there = {path.name for path in (ROOT / 'nbs/tutorials/images').iterdir()}
    assert there == {*SHOWN, *DRAWN} and all((ROOT / program).is_file() for program in DRAWN.values())
    pages = [ROOT / 'README.md', *ROOT.glob('docs/*.md'), *ROOT.glob('nbs/**/*.ipynb')]
    links = re.compile(r'!\[[^\]]*\]\([./]*(?:nbs/)?(?:tutorials/)?images/([\w.-]+)\)')
    assert there == {name for page in pages for name in links.findall(page.read_text(encoding='utf-8'))}


def test_diagrams_are_read_as_mermaid_means_them(diagrams):
    dot = diagrams.as_dot('flowchart LR\n  a["one<br/>two"] -- three --> b --> c[("d")]\n  b -. e .-> a\n')
    for row in ('a [label="one\\ntwo"]', 'a -> b [label="three"]', 'b -> c', 'c [label="d" shape=cylinder]',
                'b -> a [label="e" style=dashed]'):
        assert row in dot, dot
    dot = diagrams.as_dot('stateDiagram-v2\n    [*] --> a: x\n    a --> b: y\n    a --> b: z\n')
    assert 'begin -> a [label="x"]' in dot and 'a -> b [label="y\\nz"]' in dot
    for wrong in ('pie\n  a\n', 'flowchart LR\n  a ==> b\n', 'stateDiagram-v2\n  note\n'):
        with pytest.raises(ValueError): diagrams.as_dot(wrong)


def test_files_that_are_named_exist():
    pages = ['README.md', 'CONTRIBUTING.md', *(f'docs/{p.name}' for p in (ROOT / 'docs').glob('*.md'))]
    path = r'`((?:nbs|tests|docs|data|\.ci|\.github)/[\w./-]+)`'
    named = {file for page in pages for file in re.findall(path, text(page))}
    assert len(named) > 5
    named = {file for file in named if not re.search('NAME|questions', file)}  # those of the examples
    named -= {file for file in named if f'/{file}' in text('.gitignore').split()}  # written on demand
    assert [file for file in sorted(named) if not (ROOT / file).exists()] == []


def test_versions_agree():
    version = paranmt_lab.__version__
    assert yaml.safe_load(text('CITATION.cff'))['version'] == version
    assert f'## {version}' in text('CHANGELOG.md')


def test_the_workflow_runs_the_checks_on_the_supported_pythons():
    workflow = yaml.safe_load(text('.github/workflows/ci.yml'))
    job = workflow['jobs']['test']
    least = re.search(r'requires-python = ">=([\d.]+)"', text('pyproject.toml'))[1]
    assert least in job['strategy']['matrix']['python']
    assert any(step.get('run') == '.ci/run' for step in job['steps'])


def test_the_citation_names_five_papers():
    papers = yaml.safe_load(text('CITATION.cff'))['references']
    assert len(papers) == 5 and all(p['title'] and p['authors'] and p['year'] for p in papers)


def test_the_sources_of_the_site_have_every_notebook_and_the_described_parameters(tmp_path):
    subprocess.run([sys.executable, ROOT / 'docs/stage.py', tmp_path / 'site'], check=True)
    staged = {path.relative_to(tmp_path / 'site') for path in (tmp_path / 'site').rglob('*.ipynb')}
    here = {path.relative_to(ROOT) for path in (ROOT / 'nbs').rglob('*.ipynb') if '.ipynb_chec' not in str(path)}
    assert staged == here
    filters = (tmp_path / 'site/api/filters.md').read_text(encoding='utf-8')
    assert '{py:function} key_of(token: str, types: dict[str, int]) -> int' in filters
    assert ':param types: Type to number, from 1; a new one is added' in filters
    assert ':returns: Its 64-bit key' in filters
