"""The bar of a job in a notebook: one output of its cell, which changes in place and is stored as it was last."""
import pytest

nbformat = pytest.importorskip('nbformat', reason='extra `lab`')
NotebookClient = pytest.importorskip('nbclient', reason='extra `lab`').NotebookClient

JOB = """
from paranmt_lab.jobs.progress import Progress
with Progress({total}, 'steps') as progress:
    progress.display.pause = 0
    for i in range(20): progress.advance(loss=1 / (i + 1))
"""


@pytest.fixture(scope='module')
def outputs():
    "What cells store that run a job: one whose total is known, one whose total is not, and a silent one."
    known, unknown = JOB.format(total=20), JOB.format(total=None)
    cells = [nbformat.v4.new_code_cell(text) for text in (known, unknown, known.replace("'steps'", "'s', show=False"))]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client, updates = NotebookClient(notebook, timeout=120, kernel_name='python3'), []
    process = client.process_message
    def counted(message, *rest):
        if message['msg_type'] == 'update_display_data': updates.append(message)
        return process(message, *rest)
    client.process_message = counted
    client.execute()
    return [cell.outputs for cell in notebook.cells], len(updates)


def test_the_bar_changes_in_place(outputs):
    (known, unknown, silent), updates = outputs
    assert [len(stored) for stored in (known, unknown, silent)] == [1, 1, 0]
    assert updates >= 40, 'a drawing for each step'
    assert known[0].output_type == 'display_data'
    assert known[0].data['text/plain'].startswith('20 of 20 steps, ')
    assert '<progress value="20" max="20"' in known[0].data['text/html'] and 'loss 0.05' in known[0].data['text/html']
    assert unknown[0].data['text/plain'].startswith('20 steps, ')
    assert '<progress style' in unknown[0].data['text/html']
