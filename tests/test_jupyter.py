"""JupyterLab as `make lab` starts it, in a real headless Chromium: a notebook opens, runs to its end, and its charts
are seen, and pairs are rated by key, without internet."""
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from paranmt_lab.annotation.campaigns import Campaign, keep_campaign
from paranmt_lab.annotation.store import EventLog

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = '6_showing/charts/02_scores.ipynb'
SHOTS = Path(__file__).parent / 'screenshots'
CHROMIUM = shutil.which('chromium')
pytestmark = [pytest.mark.browser,
              pytest.mark.skipif(not CHROMIUM, reason='no chromium; to run this: sudo apt-get install chromium')]

# What the notebook's model says: cells without an execution, errors, and cells whose output holds a chart.
STATE = """() => {
  const panel = jupyterapp.shell.currentWidget, cells = panel.content.model.sharedModel.cells.map(c => c.toJSON());
  const isCode = c => c.cell_type === 'code' && [c.source].flat().join('').trim();
  const code = cells.map((c, i) => ({i, ...c})).filter(isCode);
  const mimes = c => c.outputs.flatMap(o => Object.keys(o.data || {}));
  const errors = c => c.outputs.filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`);
  return {kernel: panel.sessionContext.session?.kernel?.status, code: code.length,
          waiting: code.filter(c => c.execution_count === null).length, errors: code.flatMap(errors),
          charts: code.filter(c => mimes(c).some(m => m.startsWith('application/vnd.vegalite'))).map(c => c.i),
          pictures: code.filter(c => mimes(c).includes('image/svg+xml')).map(c => c.i)};
}"""

# Colours of a canvas: a blank one has one.
COLOURS = """canvas => {
  const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
  return seen.size; }"""


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def lab_commands():
    "The commands of `make lab` that call jupyter, as make would run them; the last one starts the server."
    said = subprocess.run(['make', '-n', 'lab'], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line.split('>')[0]) for line in said.splitlines() if re.match(r'\S*/jupyter ', line)]


def wait_for(ask, what, seconds=120):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if value := ask(): return value
        time.sleep(.3)
    raise AssertionError(f'{what}: not within {seconds} s')


@pytest.fixture(scope='module')
def log(tmp_path_factory):
    "An annotation database with a campaign of four pairs."
    made = EventLog(f"sqlite:///{tmp_path_factory.mktemp('annotations') / 'annotations.sqlite'}")
    texts = [('It was raining.', 'It rained.'), ('She sold her car.', 'She buyed a car.'),
             ('He gave up smoking.', '<img src=x onerror="window.hacked=1"> He smokes no more.'),
             ('We leave at seven.', 'We leave in the evening.')]
    items = pd.DataFrame(dict(pair_id=range(4), stratum='all', weight=1.,
                              reference=[t[0] for t in texts], translation=[t[1] for t in texts], source=None))
    keep_campaign(made, Campaign('lab', overlap=1,
                                 guidelines='Judge what is **written**. <script>window.hacked = 1</script>'), items)
    return made


@pytest.fixture(scope='module')
def lab(tmp_path_factory, log):
    "A server with settings of its own, under which nothing is saved unasked: the notebook's file stays as it is."
    home, port = tmp_path_factory.mktemp('jupyter'), free_port()
    own = {name: str(home / name) for name in ('JUPYTER_CONFIG_DIR', 'JUPYTER_DATA_DIR', 'JUPYTER_RUNTIME_DIR',
                                               'JUPYTERLAB_SETTINGS_DIR', 'JUPYTERLAB_WORKSPACES_DIR', 'IPYTHONDIR')}
    own['PARANMT_ANNOTATIONS'] = log.url
    options = ['--no-browser', '--allow-root', '--ServerApp.ip=127.0.0.1',
               f'--ServerApp.port={port}', '--ServerApp.port_retries=0',
               '--IdentityProvider.token=', '--LabApp.expose_app_in_browser=True']
    for plugin, setting in (('docmanager-extension/plugin', '{"autosave": false}'),
                            ('apputils-extension/notification', '{"fetchNews": "false"}')):
        file = home / f'JUPYTERLAB_SETTINGS_DIR/@jupyterlab/{plugin}.jupyterlab-settings'
        file.parent.mkdir(parents=True)
        file.write_text(setting)
    *before, start = lab_commands()
    for command in before:
        subprocess.run(command, cwd=ROOT, env=os.environ | own, check=True, stdout=subprocess.DEVNULL)
    with open(home / 'log', 'w') as log:
        server = subprocess.Popen(start + options, cwd=ROOT, env=os.environ | own,
                                  stdout=log, stderr=log, start_new_session=True)

    def answers():
        assert server.poll() is None, (home / 'log').read_text()[-3000:]
        try: return urllib.request.urlopen(f'http://127.0.0.1:{port}/api', timeout=5).status == 200
        except OSError: return False
    try:
        wait_for(answers, 'JupyterLab answers')
        yield f'http://127.0.0.1:{port}'
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


@pytest.fixture(scope='module')
def page(lab):
    "A browser that reaches nothing but the server."
    from playwright.sync_api import sync_playwright
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM,
                                       args=['--no-sandbox', '--disable-background-networking', '--disable-gpu'])
        page = browser.new_page(viewport=dict(width=1400, height=1000))
        page.route(lambda url: not url.startswith((lab, 'data:', 'blob:')), lambda route: route.abort())
        yield page
        browser.close()


# Of the open notebook: stored outputs that are shown as pictures, and those of which one sees only the name of a chart.
SHOWN = """() => [...jupyterapp.shell.currentWidget.node.querySelectorAll('.jp-OutputArea-output')].reduce((all, o) => {
  if (o.matches('.jp-RenderedSVG') && o.querySelector('svg, img')) all.pictures += 1;
  if (/^alt\\.\\w+Chart\\(/.test(o.textContent.trim())) all.texts += 1;
  return all; }, {pictures: 0, texts: 0})"""


@pytest.mark.soak
def test_the_first_page_leads_to_notebooks_with_their_stored_pictures(page, lab):
    page.goto(f'{lab}/?reset')
    page.wait_for_selector('.jp-NotebookPanel h1:has-text("explore a corpus")', timeout=120_000)  # the first tutorial
    page.goto(f'{lab}/lab/tree/START.ipynb?reset')
    page.wait_for_selector('.jp-NotebookPanel h1:has-text("ParaNMT Lab")', timeout=120_000)
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / 'jupyterlab-start.png')
    for link in 'Selection: choosing a training set', 'Choosing pairs':  # from a package to one of its notebooks
        page.locator('.jp-NotebookPanel:not(.lm-mod-hidden)').get_by_role('link', name=link, exact=True).first.click()
        page.wait_for_selector(f'.jp-NotebookPanel h1:has-text("{link}")', timeout=120_000)
    shown = wait_for(lambda: page.evaluate(SHOWN)['pictures'] and page.evaluate(SHOWN), 'a stored picture', 60)
    page.locator('.jp-RenderedSVG').first.scroll_into_view_if_needed()
    page.screenshot(path=SHOTS / 'jupyterlab-stored.png')
    assert shown['pictures'] and not shown['texts']


def test_notebook_runs_to_its_end_and_shows_its_charts(page, lab):
    page.goto(f'{lab}/lab/tree/{NOTEBOOK}?reset')
    page.wait_for_selector('.jp-NotebookPanel .jp-CodeCell', timeout=120_000)
    wait_for(lambda: page.evaluate(STATE)['kernel'] == 'idle', 'the kernel is ready')
    page.get_by_role('menuitem', name='Run', exact=True).click()
    page.get_by_role('menuitem', name='Run All Cells', exact=True).click()

    def over():
        state = page.evaluate(STATE)
        return state if state['errors'] or not state['waiting'] and state['kernel'] == 'idle' else None
    state = wait_for(over, f'{NOTEBOOK} runs to its end', 180)
    assert state['errors'] == [] and state['code'] > 5
    assert state['charts']
    assert set(state['charts']) <= set(state['pictures']), 'each chart is stored as a drawing and as a picture'

    SHOTS.mkdir(exist_ok=True)
    for n, cell in enumerate(state['charts'][:3]):
        page.evaluate("i => jupyterapp.shell.currentWidget.content.scrollToItem(i, 'start')", cell)
        canvas = page.locator(f'.jp-Notebook [data-windowed-list-index="{cell}"] .jp-RenderedVegaLite canvas').first
        canvas.wait_for(state='visible', timeout=30_000)
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box['width'] > 100 and box['height'] > 50
        assert canvas.evaluate(COLOURS) > 3, 'the chart is blank'
        page.screenshot(path=SHOTS / f'jupyterlab-{n}.png')
    assert page.get_by_text('Error loading script').count() == 0


# A cell of ours at the head of the open notebook, which is never saved, and its run.
RATE = """async source => {
  const notebook = jupyterapp.shell.currentWidget.content;
  notebook.model.sharedModel.insertCell(0, {cell_type: 'code', source, metadata: {trusted: true}});
  notebook.activeCellIndex = 0;
  await jupyterapp.commands.execute('notebook:run-cell');
}"""
CELLS = '() => jupyterapp.shell.currentWidget.content.model.cells.length'


def test_pairs_are_rated_by_key_in_a_cell(page, lab, log):
    page.goto(f'{lab}/lab/tree/6_showing/components/04_widgets.ipynb?reset')
    page.wait_for_selector('.jp-NotebookPanel .jp-Cell', timeout=120_000)
    wait_for(lambda: page.evaluate(STATE)['kernel'] == 'idle', 'the kernel is ready')
    page.evaluate(RATE, "from paranmt_lab.components.widgets import rate\nrate('lab', 'ada')")
    card, translation = page.locator('.paranmt-rating'), page.locator('.paranmt-rating [data-side=translation]')
    card.get_by_role('button', name='I have read the guidelines').click(timeout=120_000)
    translation.wait_for()
    cells, told = page.evaluate(CELLS), card.locator('.told')

    def after(keys, text):
        for key in keys: page.keyboard.press(key)
        wait_for(lambda: translation.count() and translation.inner_text() == text, f'{keys} bring {text!r}', 30)

    def shot(name):
        card.scroll_into_view_if_needed()
        page.mouse.move(1, 1)
        card.screenshot(path=SHOTS / f'{name}.png')

    assert translation.inner_text() == 'It rained.'
    page.evaluate('document.activeElement.blur()')
    for key in '33': page.keyboard.press(key)
    page.wait_for_timeout(500)
    assert translation.inner_text() == 'It rained.', 'a key that is pressed elsewhere rates nothing'

    SHOTS.mkdir(exist_ok=True)
    translation.click()
    shot('widget-light')
    after('33', 'She buyed a car.')
    for key in ('x', 'a', 'y', 'z', 'Enter', 'Shift+Enter'):
        page.keyboard.press(key)  # commands of JupyterLab: they are not for it while the card has the focus
    after('22', '<img src=x onerror="window.hacked=1"> He smokes no more.')
    after('u', 'She buyed a car.')
    assert 'Undone' in told.inner_text()
    # the button is drawn anew, and the keys still go to the card
    card.get_by_role('button', name='not the same').click()
    after('e', '<img src=x onerror="window.hacked=1"> He smokes no more.')
    page.keyboard.press('c')
    page.keyboard.type('x 1 2 3')
    page.keyboard.press('Enter')
    wait_for(lambda: 'Comment saved' in told.inner_text(), 'the comment is saved', 30)
    after(['3', '3'], 'We leave in the evening.')
    page.keyboard.press('?')
    assert 'Judge what is written. <script>' in card.locator('.guidelines').inner_text()
    light = card.locator('.card').evaluate('e => getComputedStyle(e).color')
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    wait_for(lambda: card.locator('.card').evaluate('e => getComputedStyle(e).color') != light,
             'the card follows the theme', 30)
    shot('widget-dark')
    for key in '23': page.keyboard.press(key)
    card.locator('.empty').wait_for()
    assert page.evaluate('window.hacked') is None and page.evaluate(CELLS) == cells

    with closing(sqlite3.connect(log.path)) as db:
        rows = db.execute("SELECT item, strength, fluency, comment FROM assignments "
                          "WHERE annotator = 'ada' AND state = 'rated' ORDER BY item").fetchall()
        kinds = [k for k, in db.execute("SELECT kind FROM events "
                                        "WHERE annotator = 'ada' AND kind NOT IN ('assigned') ORDER BY id")]
    assert rows == [(1, 3, 3, None), (2, 1, 3, None), (3, 3, 3, 'x 1 2 3'), (4, 2, 3, None)]
    assert kinds == ['guidelines read', 'rated', 'rated', 'undone', 'rated', 'commented', 'rated', 'rated']
