"""MTEB runs with our encoders: a task of the sample's graded pairs, without a network."""
import pandas as pd
import pytest

from paranmt_lab import evaluate, open_model
from paranmt_lab.encoders.mteb import MtebEncoder
from paranmt_lab.ground.settings import settings

pytestmark = pytest.mark.soak


@pytest.fixture
def task(monkeypatch):
    "A task of MTEB whose pairs are those of the sample."
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    pytest.importorskip('mteb', reason='extra `mteb`')
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class SampleSTS(AbsTaskSTS):
        metadata = TaskMetadata(name='SampleSTS', description='Graded pairs of the sample', type='STS',
                                dataset=dict(path='none', revision='none'), eval_langs=['eng-Latn'], license='mit',
                                main_score='cosine_spearman')

        def load_data(self, **options):
            pairs = pd.read_csv(settings().sample / 'graded.tsv', sep='\t', quoting=3)
            self.dataset = dict(test=Dataset.from_pandas(pairs[['sentence1', 'sentence2', 'score']]))
            self.data_loaded = True

    return SampleSTS()


@pytest.mark.parametrize('name', ['paraphrase-scorer', 'paraphrase-scorer-2'])
def test_mteb_has_our_figures(task, name):
    import mteb
    encoder = open_model(name)
    model = MtebEncoder(encoder)
    result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    [scores] = result.task_results[0].scores['test']
    ours = evaluate(encoder, [], settings().sample / 'graded.tsv').set_index('metric').value
    print(name, {k: round(scores[k], 4) for k in ('pearson', 'spearman', 'cosine_pearson', 'cosine_spearman')})
    assert model.mteb_model_meta.name == f'paranmt-lab/{name}' == result.model_name
    assert result.model_revision == encoder.identity['checksum']
    for metric in ('pearson', 'spearman'):
        assert scores[metric] == pytest.approx(ours[metric], abs=1e-5)
        assert scores[f'cosine_{metric}'] == pytest.approx(ours[metric], abs=1e-5)
