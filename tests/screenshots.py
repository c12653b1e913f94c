"""Pictures of the app's pages on the demonstration's data: make screenshots.

    python tests/screenshots.py [WORKSPACE] [--all]

The pages of `SHOWN` go to nbs/tutorials/images/, those of `EXAMPLES` to paranmt_lab/assets/views/, where an empty page
shows them; with --all every page goes to tests/screenshots/, in both colour schemes.
WORKSPACE is one that `paranmt demo` has filled; without it the workspace of the settings is shown. The ratings of the
pictures are in a database of their own, which is forgotten."""
import os
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from app_workspace import serving
from paranmt_lab.annotation.campaigns import Campaign, create_campaign
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.ground.settings import settings

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / 'tests/pages'))
from test_app import CHROMIUM, PATIENCE, Page

# File in nbs/tutorials/images to the page that it shows, its address and the keys that are pressed there.
SHOWN = {
    'app-pairs.png': ('pairs', {}, ''),
    'app-training.png': ('training', {}, ''),
    'rating_card.png': ('annotate', dict(campaign='ratings', annotator='ada'), '2v'),
}
# Pages that show a picture of themselves where a workspace has nothing for them.
EXAMPLES = ('back-translation', 'pairs', 'training', 'negatives', 'embedding-map', 'compare', 'lexicon', 'neighbours')
# The other pictures of nbs/tutorials/images and the programs that draw them.
DRAWN = {'peers.svg': 'nbs/papers/peers.py', 'packages.svg': 'docs/packages.py'}
EVERY = ('', 'back-translation', 'pairs', 'lexicon', 'annotate', 'agreement', 'training', 'compare',
         'negatives', 'embedding-map', 'neighbours', 'generate', 'results')

# The overview tells where the workspace is; a picture does not show the folder of the person who took it
WITHOUT_PATHS = """() => { for (const part of document.querySelectorAll('strong'))
  if (part.textContent.startsWith('/')) part.textContent = 'data'; }"""


def picture(page, path, file, address, keys='', tall=True):
    "Draw a page and take its picture, in 256 colours; an error on it ends the program."
    page.open(path, **address)
    if tall:
        height = page.tab.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.tab.set_viewport_size({'width': 1440, 'height': min(max(height, 900), 4000)})
        page.tab.wait_for_timeout(1500)
        page.settle()
    if keys:
        if (start := page.tab.locator('.st-key-admit button')).count(): page.after(start.click)
        page.tab.wait_for_selector('.card')
        for key in keys: page.tab.keyboard.press(key)
        page.tab.wait_for_timeout(500)
    page.tab.evaluate(WITHOUT_PATHS)
    page.tab.screenshot(path=file)
    Image.open(file).convert('RGB').quantize(256).save(file, optimize=True)
    page.tab.set_viewport_size({'width': 1440, 'height': 1000})
    if 'This view cannot be shown' in page.text(): sys.exit(f'{path or "overview"} shows an error: see {file}')


def example(page, path, folder):
    "The picture of a page without its sidebar and its header, as small as it can be read."
    page.open(path)
    page.tab.wait_for_timeout(1000)
    box = page.tab.locator('[data-testid=stMain]').bounding_box()
    top = page.tab.locator('.st-key-page_header').bounding_box()['y'] + 90
    data = page.tab.screenshot(clip=dict(x=box['x'] + 16, y=top, width=box['width'] - 48, height=640))
    Image.open(BytesIO(data)).convert('RGB').save(folder / f'{path.replace("-", "_")}.webp', quality=60, method=6)


def main(workspace, out, every):
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        os.environ |= dict(PARANMT_ANNOTATIONS=f'sqlite:///{folder}/ratings.sqlite', PARANMT_WORKSPACE=str(workspace))
        ratings = Campaign('ratings', corpus='sample-pairs', measure='paraphrase_score@paraphrase-scorer', n=20)
        create_campaign(EventLog(settings().annotations), ratings)
        context = p.chromium.launch_persistent_context(
            f'{folder}/profile', executable_path=CHROMIUM, viewport={'width': 1440, 'height': 1000},
            args=['--no-sandbox', '--disable-background-networking'])
        with serving(workspace) as (address, _):
            page = Page(context, address)
            page.tab.set_default_timeout(PATIENCE)
            for name, (path, facts, keys) in SHOWN.items() if not every else ():
                picture(page, path, ROOT / f'nbs/tutorials/images/{name}', facts, keys, tall=False)
            for path in EXAMPLES if not every else (): example(page, path, ROOT / 'paranmt_lab/assets/views')
            for scheme in ('light', 'dark') if every else ():
                page.tab.emulate_media(color_scheme=scheme)
                for path in EVERY: picture(page, path, out / f'{path or "overview"}-{scheme}.png', {})
        context.close()


if __name__ == '__main__':
    folders = [Path(word) for word in sys.argv[1:] if not word.startswith('--')]
    shots = ROOT / 'tests/screenshots'
    shots.mkdir(exist_ok=True)
    main(folders[0] if folders else settings().workspace, shots, '--all' in sys.argv)
