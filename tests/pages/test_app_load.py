"""The whole app at once, on demand (make soak): every page in both colour schemes, and ten browsers for two minutes.

Pictures of the walk go to build/pages/ (not committed) to be looked at. SOAK_SECONDS and SOAK_BROWSERS
change the length and the number of the second test."""
import asyncio
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from test_app import CHROMIUM, PATIENCE, ROOT, Page, app, browser, make_maps, server, workspace  # noqa: F401 (fixtures)

from screenshots import EVERY

pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason='needs Chromium: apt-get update && apt-get install -y chromium')]

PICTURES = ROOT / 'build/pages'
BROKEN = re.compile('This view cannot be shown|cannot show what this address|Traceback|KeyError|AttributeError')
SECONDS, BROWSERS = (int(os.environ.get(f'SOAK_{name}', default))
                     for name, default in (('SECONDS', 120), ('BROWSERS', 10)))


def save_menus(page):
    "Open the first menu below a figure or a table of the page, and return its text; empty where there is none."
    buttons = page.tab.locator('[data-testid=stPopover] button', has_text='the command').filter(visible=True)
    if not buttons.count(): return ''
    buttons.first.scroll_into_view_if_needed()
    buttons.first.click()
    page.tab.locator('[data-testid=stPopoverBody]').wait_for()
    page.tab.wait_for_timeout(1000)
    text = page.settle().tab.locator('[data-testid=stPopoverBody]').inner_text()
    page.tab.keyboard.press('Escape')
    return text


FILLED = { # Addresses at which a page has most to show
    'annotate': dict(campaign='rated', annotator='cem'), 'agreement': dict(campaign='rated'),
    'embedding-map': dict(corpus='talk-reworded', pairs=1000, sides='both sides', edges='True'),
    **{name: dict(corpus='talk-reworded') for name in ('pairs', 'neighbours')}}


@pytest.fixture(scope='module')
def campaign(workspace):  # noqa: F811
    "A campaign that two people have rated; they differ on every fourth pair."
    from dataclasses import replace

    from paranmt_lab.annotation.answers import submit
    from paranmt_lab.annotation.campaigns import Campaign, create_campaign
    from paranmt_lab.annotation.queue import Task, next_item
    from paranmt_lab.annotation.store import EventLog
    from paranmt_lab.ground.settings import settings
    lab = replace(settings(), workspace=workspace, annotations=f"sqlite:///{workspace / 'annotations.sqlite'}")
    log = EventLog(lab.annotations)
    create_campaign(log, Campaign('rated', 'talk-reworded', measure='paraphrase_score@trigram-m1', n=8, overlap=2), lab)
    for rater in ('ada', 'bob'):
        while isinstance(task := next_item(log, 'rated', rater), Task):
            strength = 1 + (task.item + (rater == 'bob' and task.item % 4 == 0)) % 3
            submit(log, 'rated', rater, task.item, strength, 3, f'{rater}-{task.item}')


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_every_page_is_drawn(browser, app, campaign, scheme):  # noqa: F811
    "Each page without an error, its first menu opens and names a command, and its picture is kept."
    PICTURES.mkdir(parents=True, exist_ok=True)
    page, menus = Page(browser, app), {}
    page.tab.emulate_media(color_scheme=scheme)
    for path in EVERY:
        page.open(path, **FILLED.get(path, {}))
        if path == 'embedding-map': make_maps(page)
        page.tab.wait_for_timeout(1000)
        name = path or 'overview'
        assert not BROKEN.search(page.settle().text()), (name, page.text())
        menus[name] = save_menus(page)
        assert not BROKEN.search(page.text()), name
        height = page.tab.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.tab.set_viewport_size({'width': 1440, 'height': min(max(height, 900), 4000)})
        page.settle().tab.screenshot(path=PICTURES / f'{name}-{scheme}.png')
        page.tab.set_viewport_size({'width': 1440, 'height': 1100})
    assert not page.abroad and not page.dialogs
    page.tab.close()
    for name in ('overview', 'pairs', 'training', 'results', 'lexicon', 'neighbours',
                 'embedding-map', 'agreement'):
        assert 'paranmt' in menus[name], f'{name} does not tell its command: {menus[name]!r}'


QUIET = """title => document.querySelector('h1')?.innerText.trim() == title
  && document.querySelector('[data-testid=stApp]').dataset.testScriptState != 'running'
  && !document.querySelector('[data-testid=stSkeleton],[data-testid=stSpinner]')"""


def resident(process):
    "MB of memory that a process has now; nan where the system has no /proc."
    status = Path(f'/proc/{process.pid}/status')
    found = re.search(r'VmRSS:\s+(\d+) kB', status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float('nan')


async def walk(context, address, corpus, until, seed):
    "Click through all pages until a time; returns (page, seconds) of each update."
    tab, taken, chance = await context.new_page(), [], np.random.default_rng(seed)
    tab.set_default_timeout(PATIENCE)
    await tab.goto(f'{address}/pairs?corpus={corpus}')
    await tab.wait_for_function(QUIET, arg='Pairs')
    links = await tab.locator('[data-testid=stSidebarNavLink]').all_inner_texts()
    names = [text.splitlines()[-1].strip() for text in links]
    assert len(names) == len(EVERY), names
    while time.monotonic() < until:
        for name in chance.permutation(names):
            begun = time.monotonic()
            await tab.locator('[data-testid=stSidebarNavLink]', has_text=re.compile(f'{name}$')).click()
            await tab.wait_for_function(QUIET, arg=name)
            taken.append((name, time.monotonic() - begun))
            text = await tab.inner_text('[data-testid=stMain]')
            assert not BROKEN.search(text), (name, text[:2000])
            shown = re.search(r'^corpus ([\w-]+), [\d,]+ pairs', text, re.M)
            if name in ('Pairs', 'Embedding map', 'Neighbours') and shown:
                assert shown[1] == corpus, f'{name} shows {shown[1]} to the reader of {corpus}'
            if time.monotonic() > until: break
            await tab.wait_for_timeout(int(chance.integers(200, 1500)))
    return taken


async def all_at_once(address):
    "Updates of all readers; every second one reads another corpus."
    from playwright.async_api import async_playwright
    async with async_playwright() as p:
        chromium = await p.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'])
        contexts = [await chromium.new_context(viewport={'width': 1280, 'height': 800}) for _ in range(BROWSERS)]
        until, corpora = time.monotonic() + SECONDS, ('talk-reworded', 'hostile')
        found = await asyncio.gather(*(walk(context, address, corpora[k % 2], until, k)
                                       for k, context in enumerate(contexts)))
        await chromium.close()
    return [update for taken in found for update in taken]


def test_ten_browsers(server):  # noqa: F811
    "No error and no cross-talk; the time of a page's update and the server's memory are printed."
    address, process = server
    before = resident(process)
    with ThreadPoolExecutor(1) as pool:  # the other tests' browser keeps an event loop in this thread
        updates = pool.submit(lambda: asyncio.run(all_at_once(address))).result()
    after = resident(process)
    seconds = np.array([taken for _, taken in updates])
    assert len(updates) >= BROWSERS
    slow = {name: max(t for n, t in updates if n == name) for name, _ in updates}
    print(f'\n{BROWSERS} browsers, {SECONDS} s: {len(updates)} updates, median {np.median(seconds):.2f} s, '
          f'p95 {np.percentile(seconds, 95):.2f} s, slowest {max(slow, key=slow.get)} {max(slow.values()):.2f} s; '
          f'server {before:,.0f} MB before, {after:,.0f} MB after; load {os.getloadavg()[0]:.1f} on '
          f'{os.cpu_count()} cores')
