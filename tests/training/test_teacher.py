"""Learning from a teacher: its vectors are read once, whatever kills the reading; all steps follow it alike."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
from paranmt_lab.ground.fields import alter
from paranmt_lab.ground.models import identity_of, open_model
from paranmt_lab.ground.settings import read_json, settings
from paranmt_lab.jobs.workers import locked
from paranmt_lab.training.beginning import EncodingJob, SentenceVectors
from paranmt_lab.training.config import train_config
from paranmt_lab.training.data import choose_pairs, prepare
from paranmt_lab.training.loop import EncoderLearner, train
from paranmt_lab.training.origin import Origin
from paranmt_lab.training.steppers import AutogradStepper, CompiledStepper

BASE = train_config('taught', 'halves', model='WORD,TRIGRAM', dim=24, vocabulary=500, batch_size=20, megabatch=2,
                    epochs=2, learning_rate=0.01, checkpoint_every=0, probes=0, teacher='paraphrase-scorer',
                    teacher_weight=20.)


@pytest.fixture(scope='module')
def workspace(halves): return halves()


@pytest.fixture(scope='module')
def job(workspace):
    "The pairs, read by the encoder that ships."
    corpus = Corpus.open('halves', workspace)
    job = EncodingJob(corpus, choose_pairs(corpus), identity_of('paraphrase-scorer'))
    assert job.read(open_model('paraphrase-scorer'), show=False)
    return job


def texts(corpus):
    "Both sides of all pairs, one after the other."
    return corpus.frame(['reference', 'translation']).to_numpy().ravel().tolist()


def taught_steps(s, config, kind):
    "Steps of a few mega-batches by one kind of stepper, and the last weights."
    origin, corpus = Origin(config, s), Corpus.open('halves', s)
    data = prepare(choose_pairs(corpus), origin, show=False)
    teacher = origin.identity(config.optimizer.teacher)
    data.teacher = EncodingJob(corpus, choose_pairs(corpus), teacher).read(origin.teacher)
    learner, steps = EncoderLearner(origin, data, kind=kind), []
    for mega in range(6):
        learner.at.batch = mega
        steps += learner.mega_batch(np.random.default_rng(mega).permutation(100))
    return steps, learner.stepper.optimizer.settled()


FIELDS = {'as it is': {}, 'fitted': dict(teacher_scale=0.0), 'a factor': dict(teacher_scale=1.3),
          'alone': dict(batch_size=100, megabatch=1), 'one side': dict(sides=1, sampling='MIX'),
          'published': dict(concatenation='plain', exclude='pair')}


@pytest.mark.parametrize('fields', FIELDS.values(), ids=FIELDS)
def test_compiled_steps_follow_a_teacher_like_the_reference(workspace, job, fields):
    config = alter(BASE, **fields)
    kinds = AutogradStepper, CompiledStepper
    (slow, theirs), (fast, ours) = (taught_steps(workspace, config, kind) for kind in kinds)
    assert len(slow) == len(fast) > 5
    np.testing.assert_allclose([x.loss for x in fast], [x.loss for x in slow], atol=2e-3)
    np.testing.assert_allclose([x.teacher for x in fast], [x.teacher for x in slow], atol=2e-4)
    for name in theirs: assert (theirs[name] - ours[name]).abs().max() < 2e-3


def test_the_vectors_are_those_of_the_teacher(workspace, job):
    vectors, sentences = SentenceVectors(job.folder), texts(job.corpus)
    expected = open_model('paraphrase-scorer').encode(sentences)
    np.testing.assert_allclose(vectors[np.arange(len(sentences))], expected, atol=2e-3)
    assert vectors.shape == expected.shape and len(vectors.vectors) == len(set(sentences))


CHILD = """
import sys, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings
from paranmt_lab.training import beginning as vectors
from paranmt_lab.training.data import choose_pairs
class Slow:
    dim, identity = 3, dict(name='slow', checksum='slow')
    def encode(self, sentences):
        time.sleep(.05)
        return np.array([[len(x), x.count('e'), 1] for x in sentences], np.float32)
vectors.PIECE = 7
corpus = Corpus.open('halves', replace(settings(), workspace=Path(sys.argv[1])))
vectors.EncodingJob(corpus, choose_pairs(corpus), Slow.identity).read(Slow(), show=False)
"""


def test_a_killed_reading_goes_on_where_it_was(workspace, tmp_path):
    "Killed at any time, it loses a piece at most; the vectors are those of an undisturbed one."
    program = tmp_path / 'slow.py'
    program.write_text(CHILD)
    corpus = Corpus.open('halves', workspace)
    job = EncodingJob(corpus, choose_pairs(corpus), dict(name='slow', checksum='slow'))
    environment = os.environ | dict(PYTHONPATH=str(Path(__file__).parents[2]))
    command, before = [sys.executable, str(program), str(workspace.workspace)], 0
    child = subprocess.Popen(command, env=environment)
    while job.state.get('done', 0) < 21: time.sleep(.01)
    with pytest.raises(RuntimeError, match='another process is working'), locked(job.folder): pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = job.state['done']
    assert 21 <= before < job.state['distinct'] and not job.complete

    class Quick:
        dim, seen = 3, 0

        def encode(self, sentences):
            self.seen += len(sentences)
            return np.array([[len(x), x.count('e'), 1] for x in sentences], np.float32)

    quick, sentences = Quick(), texts(corpus)
    vectors = job.read(quick, show=False)
    assert quick.seen == job.state['distinct'] - before
    np.testing.assert_array_equal(vectors[np.arange(len(sentences))], Quick().encode(sentences))


def test_a_run_reads_once_and_says_who_taught(workspace, monkeypatch):
    "A second run on the same pairs opens no teacher for reading, and a stopped run ends with the same bits."
    run = train(BASE, workspace, show=False)
    assert read_json(run.folder / 'teacher.json') == identity_of('paraphrase-scorer')
    monkeypatch.setattr(EncodingJob, 'read', lambda *_: pytest.fail('read again'))
    broken = alter(BASE, name='stopped')
    while not train(broken, workspace, show=False, stop=lambda: True).finished: pass
    both = [(workspace.runs / name / 'encoder' / 'weights.safetensors').read_bytes() for name in ('taught', 'stopped')]
    assert both[0] == both[1]


def test_a_reading_that_is_asked_to_stop_stops_the_run(workspace, monkeypatch):
    "The run is begun and not lost: the next call goes on with the reading."
    from paranmt_lab.jobs.progress import Progress
    from paranmt_lab.training import beginning as vectors
    config = alter(BASE, name='patient', limit=150)
    monkeypatch.setattr(vectors, 'PIECE', 20)
    with monkeypatch.context() as held:
        held.setattr(Progress, 'stopping', property(lambda self: self.what == 'sentences read' and self.done >= 40))
        assert not train(config, workspace, show=False).finished
    corpus = Corpus.open('halves', workspace)
    job = EncodingJob(corpus, choose_pairs(corpus, limit=150), identity_of('paraphrase-scorer'))
    assert job.state['done'] == 40
    assert train(config, workspace, show=False).finished and job.complete


def test_what_cannot_be_followed_is_refused(workspace):
    with pytest.raises(ValueError, match='teacher_weight and teacher_scale need a teacher'):
        train_config('x', 'halves', teacher_weight=3.)
    with pytest.raises(FileNotFoundError, match='nosuch'):
        train(alter(BASE, name='refused', teacher='nosuch'), workspace, show=False)
    assert not (workspace.runs / 'refused').exists()


def test_damaged_vectors_are_one_line_with_a_remedy(workspace, job, tmp_path):
    import shutil
    folder = Path(shutil.copytree(job.folder, tmp_path / 'damaged'))
    (folder / 'vectors.npy').write_bytes((folder / 'vectors.npy').read_bytes()[:500])
    with pytest.raises(ValueError, match='is damaged.*delete that folder'): SentenceVectors(folder)


def test_a_vector_that_is_not_finite_is_refused(workspace):
    "Half precision ends at 65,504."
    class Huge:
        dim = 2

        def encode(self, sentences): return np.full((len(sentences), 2), 1e6, np.float32)

    corpus = Corpus.open('halves', workspace)
    with pytest.raises(FloatingPointError, match='huge gives a sentence no finite vector'):
        EncodingJob(corpus, choose_pairs(corpus), dict(name='huge', checksum='huge')).read(Huge(), show=False)


def test_the_order_of_cosines_comes_from_the_teacher(workspace):
    "A student that starts at random agrees with its teacher about sentences that are no pairs."
    teacher, sentences = open_model('paraphrase-scorer'), texts(Corpus.open('halves', workspace))
    config = alter(BASE, name='followed', epochs=12, learning_rate=.1, margin=0.0)
    runs = [train(x, workspace, show=False) for x in (config, alter(config, name='alone', margin=.4, teacher='',
                                                                    teacher_weight=1.))]
    taught, alone = (SentenceEncoder.load(run.folder / 'encoder') for run in runs)
    assert runs[0].metrics().teacher.dropna().between(0, .5).all() and 'teacher' not in runs[1].metrics()
    shifted = sentences[17:] + sentences[:17]
    asked = teacher.similarity_pairwise(sentences, shifted)
    agreement = [np.corrcoef(x.similarity_pairwise(sentences, shifted), asked)[0, 1] for x in (taught, alone)]
    assert agreement[0] > agreement[1] + .05


def test_the_scorer_that_learnt_from_a_teacher_ships_and_is_small():
    "At most 12 MB with its card, static, and it finds a paraphrase that shares no content word."
    scorer = open_model('paraphrase-scorer-2', gives='SentenceEncoder')
    folder = settings().shipped / 'models/paraphrase-scorer-2'
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 12e6 and scorer.layer.as_averages()
    near, far = scorer.similarity_pairwise(['The automobile is fast.'] * 2, ['A quick car.', 'A quiet garden.'])
    assert near > far + .2
