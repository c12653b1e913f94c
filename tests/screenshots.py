"""Pictures of the app's pages on the demonstration's data, light and dark: make screenshots.

    python tests/screenshots.py [WORKSPACE] [--all]

Four pages go to nbs/images/ as `app-NAME.png`; with --all every page goes to tests/screenshots/, in both colour
schemes. WORKSPACE is one that `paranmt demo` has filled; without it the workspace of the settings is shown."""
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from test_app import CHROMIUM, PATIENCE, Page

from app_workspace import serving
from paranmt_lab.ground.settings import settings

ROOT = Path(__file__).resolve().parents[1]
FOUR = {'overview': ('', {}), 'score-ranges': ('score-ranges', {}), 'filters': ('filters', {}),
        'training': ('training', {})}
EVERY = ('', 'back-translation', 'score-ranges', 'filters', 'lexicon', 'annotate', 'agreement', 'training', 'compare',
         'negatives', 'embedding-map', 'neighbours', 'generate', 'results')

# The overview tells where the workspace is; a picture does not show the folder of the person who took it
WITHOUT_PATHS = """() => { for (const part of document.querySelectorAll('strong'))
  if (part.textContent.startsWith('/')) part.textContent = 'data'; }"""


def picture(page, path, file, address, tall=True):
    "Draw a page and take its picture; an error on it ends the program."
    page.open(path, **address)
    if tall:
        height = page.tab.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.tab.set_viewport_size({'width': 1440, 'height': min(max(height, 900), 4000)})
        page.tab.wait_for_timeout(1500)
        page.settle()
    page.tab.evaluate(WITHOUT_PATHS)
    page.tab.screenshot(path=file)
    page.tab.set_viewport_size({'width': 1440, 'height': 1000})
    if 'This view cannot be shown' in page.text(): sys.exit(f'{path or "overview"} shows an error: see {file}')


def main(workspace, out, every):
    with serving(workspace) as (address, _), sync_playwright() as p:
        context = p.chromium.launch_persistent_context(
            tempfile.mkdtemp(), executable_path=CHROMIUM, viewport={'width': 1440, 'height': 1000},
            args=['--no-sandbox', '--disable-background-networking'])
        page = Page(context, address)
        page.tab.set_default_timeout(PATIENCE)
        for name, (path, facts) in FOUR.items() if not every else ():
            picture(page, path, ROOT / f'nbs/images/app-{name}.png', facts, tall=False)
        for scheme in ('light', 'dark') if every else ():
            page.tab.emulate_media(color_scheme=scheme)
            for path in EVERY: picture(page, path, out / f'{path or "overview"}-{scheme}.png', {})
        context.close()


if __name__ == '__main__':
    folders = [Path(word) for word in sys.argv[1:] if not word.startswith('--')]
    workspace = folders[0] if folders else settings().workspace
    shots = ROOT / 'tests/screenshots'
    shots.mkdir(exist_ok=True)
    main(workspace, shots, '--all' in sys.argv)
