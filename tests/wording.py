"""Wording of notebooks, docstrings, comments and pages, as docs/style.md asks for it, names of values, misspellings.

    python tests/wording.py          # name every place that has to be rewritten, participles as names, and misspellings
    python tests/wording.py count    # how often each pattern occurs"""
import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]

PATTERNS = {  # Pattern, and what to write instead
    'a statement that begins with "What"': (
        r'(?:^|(?<=[.:!?] )|(?<=\n))[*"]{0,2}What (?!if\b)[^.?!:|]*[.!:](?=\s|$)', 'name the actor or the thing first'),
    '"whoever"': (r'\b[Ww]hoever\b', 'name the person: the user, the reader, the rater'),
    '"nobody" or "somebody"': (r'\b(?:[Nn]obody|[Ss]omebody)\b(?!\')', 'name the person, or use the passive'),
    '"stands"': (r'\bstands?\b(?! (?:for|in for|out)\b)', 'write is, has, occurs, lies, or a verb that says more'),
    '"the way back"': (r'\bthe way back\b', 'backward pass'),
    '"learns nothing"': (r'\blearn(?:s|ed)? nothing\b', 'zero gradient'),
    'a bent or flat hinge': (r'\bhinges? (?:that )?(?:is|are) (?:still |not )?(?:bent|flat)\b', 'above zero, or zero'),
    '"is no negative"': (r'\bis no negative\b', 'false negative'),
    '"at hand"': (r'\bat hand\b', 'available, present, on this machine'),
    '"are to be"': (r'\bthere (?:is|are) to be\b', 'we need, we train'),
    '"passed over"': (r'\bpassed over\b', 'skip'),
    '"goes on with", for a resumed run': (r'\bgo(?:es)? on (?:with|from|where)\b', 'resume, continue'),
    '"to be had"': (r'\bto be had\b', 'available'),
    '"one\'s own"': (r'\bone\'s own\b', 'your own'),
    '"a row a pair"': (r'\b[Aa] (?:row|column|line) an? \w', 'a row for each pair'),
}

# Participles that verbs form without -ed; names that end in -ed and are none; and those that are the field's nouns,
# or an option of a command
IRREGULAR = set("""begun beaten bound broken built chosen done drawn driven fallen forgotten found frozen given gone
    grown held kept known laid led made meant met paid risen said seen sent shown sold sought spent spoken stolen sworn
    taken thrown told torn won worn written""".split())
NOUNS = set("""bed bound cased embed exceed feed hidden hundred indeed need packed padded red seed speed unused
    compiled closed""".split())
OPTIONS = {'discarded', 'graded', 'parsed'}


def is_participle(name):
    "Whether the name of a value is a participle alone; `is_decided` and `held_out` are none."
    word = name.strip('_').lower()
    if '_' in word or word in NOUNS: return False
    return word in IRREGULAR or (word.endswith('ed') and len(word) > 4)


def names_in(path):
    "Participles that a module uses as names of values, with the line of each; fields of records may be of a format."
    tree = ast.parse(path.read_text(encoding='utf-8'))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(field.target) for node in classes for field in node.body if isinstance(field, ast.AnnAssign)}
    fields |= {id(arg) for node in classes for method in node.body if getattr(method, 'name', '') == '__init__'
               for arg in method.args.args}
    for node in ast.walk(tree):
        if id(node) in fields: continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store): name = node.id
        elif isinstance(node, ast.arg): name = node.arg
        else: continue
        is_option = name in OPTIONS and 'cli' in path.parts
        if is_participle(name) and not is_option: yield node.lineno, name


def notebook_of(path):
    "The notebook that exports a module."
    match = re.search(r'File to edit: \S*(nbs/\S+\.ipynb)', path.read_text(encoding='utf-8'))
    return match[1] if match else path.relative_to(ROOT)


def pages():
    "Notebooks, pages and scripts that people read."
    notebooks = [path for path in sorted((ROOT / 'nbs').rglob('*.ipynb')) if '.ipynb_checkpoints' not in path.parts]
    texts = [*ROOT.glob('*.md'), *ROOT.glob('docs/*.md'), *ROOT.glob('data/*/README.md'),
             *ROOT.glob('data/models/*/README.md')]
    found = [*notebooks, *sorted(texts), *sorted((ROOT / 'nbs/papers').glob('*.py'))]
    # The table in style.md shows what not to write; the first page repeats summaries of the notebooks
    apart = {ROOT / 'docs/style.md', ROOT / 'nbs/START.ipynb'}
    return [path for path in found if path not in apart]


def without_code(text):
    "Markdown with code, formulas and links' targets blanked, of the same length."
    blank = lambda match: re.sub(r'[^\n]', ' ', match[0])
    return re.sub(r'```.*?```|`[^`\n]*`|\$[^$]*\$|\]\([^)]*\)', blank, text, flags=re.S)


def spoken(code):
    "Docstrings and comments of a cell or a script."
    try: tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError): return
    yield from (token.string.lstrip('#| ') for token in tokens if token.type == tokenize.COMMENT)
    try: tree = ast.parse(code)
    except SyntaxError: return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)): yield text


def prose(path):
    "Texts of a page that people read, code and example sentences left out."
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.md': yield without_code(text)
    elif path.suffix == '.py': yield from spoken(text)
    else:
        for cell in json.loads(text)['cells']:
            source = ''.join(cell['source'])
            if cell['cell_type'] == 'markdown': yield without_code(source)
            else: yield from spoken(source)


def patterns_in(text):
    "Name of each pattern that a text has, and the words around it."
    for name, (pattern, _) in PATTERNS.items():
        for match in re.finditer(pattern, text):
            yield name, ' '.join(text[max(0, match.start() - 30):match.end() + 40].split())


def misspellings(texts):
    "Lines of codespell about the texts of each page."
    with tempfile.TemporaryDirectory() as folder:
        for path, parts in texts.items():
            target = Path(folder) / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_name(target.name + '.txt').write_text('\n'.join(parts), encoding='utf-8')
        command = [sys.executable, '-m', 'codespell_lib', '.']
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        # 65: there are misspellings
        if done.returncode not in (0, 65): raise RuntimeError(f'codespell: {done.stderr.strip()}')
        return [re.sub(r'\.txt:\d+:', ':', line.removeprefix('./')) for line in done.stdout.splitlines()]


if __name__ == '__main__':
    texts = {path: list(prose(path)) for path in pages()}
    found = [(path, name, words) for path, parts in texts.items()
             for part in parts for name, words in patterns_in(part)]
    if sys.argv[1:] == ['count']:
        counts = Counter(name for _, name, _ in found)
        for name in PATTERNS: print(f'{counts[name]:5} {name}')
        sys.exit()
    for path, name, words in found:
        print(f'{path.relative_to(ROOT)}: {name}, write instead: {PATTERNS[name][1]}: ... {words} ...')
    modules = sorted((ROOT / 'paranmt_lab').rglob('*.py'))
    names = [f'{notebook_of(path)}: {name} is a participle, write a noun for the value (line {line} of the export)'
             for path in modules for line, name in names_in(path)]
    print(*names, sep='\n', end='\n' if names else '')
    spelling = misspellings(texts)
    print(*spelling, sep='\n', end='\n' if spelling else '')
    sys.exit(bool(found or names or spelling))
