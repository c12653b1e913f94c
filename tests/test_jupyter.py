"""JupyterLab as `make lab` starts it, in a real headless Chromium: a notebook opens, runs to its end, and its charts are seen, without internet."""
import os, re, shutil, signal, socket, subprocess, time, urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = '60_charts.ipynb'
SHOTS = Path(__file__).parent / 'screenshots'
CHROMIUM = shutil.which('chromium')
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not CHROMIUM, reason='no chromium; to run this: sudo apt-get install chromium')]

# What the notebook's model says: cells without an execution, errors, and cells whose output holds a chart.
STATE = """() => {
  const panel = jupyterapp.shell.currentWidget, cells = panel.content.model.sharedModel.cells.map(c => c.toJSON());
  const code = cells.map((c, i) => ({i, ...c})).filter(c => c.cell_type === 'code' && [c.source].flat().join('').trim());
  const mimes = c => c.outputs.flatMap(o => Object.keys(o.data || {}));
  return {kernel: panel.sessionContext.session?.kernel?.status, code: code.length, waiting: code.filter(c => c.execution_count === null).length,
          errors: code.flatMap(c => c.outputs.filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`)),
          charts: code.filter(c => mimes(c).some(m => m.startsWith('application/vnd.vegalite'))).map(c => c.i),
          pictures: code.filter(c => mimes(c).includes('image/svg+xml')).map(c => c.i)};
}"""

# Colours of a canvas: a blank one has one.
COLOURS = """canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; }"""


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def lab_command():
    "The command of `make lab`, as make would run it."
    said = subprocess.run(['make', '-n', 'lab'], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return next(line for line in said.splitlines() if re.search(r'jupyter lab', line)).split()


def wait_for(ask, what, seconds=120):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if value := ask(): return value
        time.sleep(.3)
    raise AssertionError(f'{what}: not within {seconds} s')


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    "A server with settings of its own, under which nothing is saved unasked: the notebook's file stays as it is."
    home, port = tmp_path_factory.mktemp('jupyter'), free_port()
    own = {name: str(home / name) for name in ('JUPYTER_CONFIG_DIR', 'JUPYTER_DATA_DIR', 'JUPYTER_RUNTIME_DIR', 'JUPYTERLAB_SETTINGS_DIR', 'JUPYTERLAB_WORKSPACES_DIR', 'IPYTHONDIR')}
    options = ['--no-browser', '--allow-root', '--ServerApp.ip=127.0.0.1', f'--ServerApp.port={port}', '--ServerApp.port_retries=0',
               '--IdentityProvider.token=', '--LabApp.expose_app_in_browser=True']
    for plugin, setting in (('docmanager-extension/plugin', '{"autosave": false}'), ('apputils-extension/notification', '{"fetchNews": "false"}')):
        file = home / f'JUPYTERLAB_SETTINGS_DIR/@jupyterlab/{plugin}.jupyterlab-settings'
        file.parent.mkdir(parents=True)
        file.write_text(setting)
    with open(home / 'log', 'w') as log:
        server = subprocess.Popen(lab_command() + options, cwd=ROOT, env=os.environ | own, stdout=log, stderr=log, start_new_session=True)

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
        browser = play.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox', '--disable-background-networking', '--disable-gpu'])
        page = browser.new_page(viewport=dict(width=1400, height=1000))
        page.route(lambda url: not url.startswith((lab, 'data:', 'blob:')), lambda route: route.abort())
        page.goto(f'{lab}/lab/tree/{NOTEBOOK}?reset')
        yield page
        browser.close()


def test_notebook_runs_to_its_end_and_shows_its_charts(page):
    page.wait_for_selector('.jp-NotebookPanel .jp-CodeCell', timeout=120_000)
    wait_for(lambda: page.evaluate(STATE)['kernel'] == 'idle', 'the kernel is ready')
    page.get_by_role('menuitem', name='Run', exact=True).click()
    page.get_by_role('menuitem', name='Run All Cells', exact=True).click()

    def over():
        state = page.evaluate(STATE)
        return state if state['errors'] or not state['waiting'] and state['kernel'] == 'idle' else None
    state = wait_for(over, f'{NOTEBOOK} runs to its end', 180)
    assert state['errors'] == [] and state['code'] > 5
    assert state['charts'] and set(state['charts']) <= set(state['pictures']), 'each chart is stored as a drawing and as a picture'

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
