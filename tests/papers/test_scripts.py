"Each script of the notebooks on the papers runs on the package and on its neighbours as they are."
import subprocess
import sys
from pathlib import Path

PAPERS = Path(__file__).parents[2] / 'nbs' / 'papers'


def test_every_script_imports_what_there_is():
    names = sorted(path.stem for path in PAPERS.glob('*.py'))
    assert names
    code = f"""
import importlib
for name in {names}:
    try: importlib.import_module(name)
    except ImportError as e: print(name, e)"""
    out = subprocess.run([sys.executable, '-c', code], cwd=PAPERS, capture_output=True, text=True, check=True)
    assert out.stdout == ''
