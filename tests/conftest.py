"""What several tests stand on."""
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings

# twenty seconds and more
LONGEST_FIRST = ('test_app', 'test_annotate', 'test_training', 'test_annotation', 'test_plugins', 'test_jupyter',
                 'test_nmt', 'test_language_model', 'test_agreement', 'test_driver', 'test_scoring', 'test_wheel',
                 'test_text', 'test_classifier', 'test_cli', 'test_bitext', 'test_export')


@pytest.fixture(autouse=True)
def main_module():
    """Streamlit's test harness leaves its script as the main module, and every process that is spawned later would run
    it: ten seconds of imports for each."""
    main = sys.modules['__main__']
    yield
    sys.modules['__main__'] = main


def pytest_collection_modifyitems(items):
    """Files that take long come first, so that no worker, which is dealt whole files, begins one at the end."""
    place = {name: i for i, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(scope='session')
def halves(tmp_path_factory):
    "Makes workspaces with a corpus `halves`: the two halves of sentences of the sample, which share few words."
    def make(pairs=200, column='reference'):
        s = replace(settings(), workspace=tmp_path_factory.mktemp('workspace'),
                    resources=Path('/nowhere'), device='cpu')
        words = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3)[column].drop_duplicates().str.split()
        words = words[words.str.len() >= 6][:pairs]
        assert len(words) == pairs
        Corpus.create('halves', s).write_pairs(
            0, pd.DataFrame({'reference': [' '.join(w[:len(w) // 2]) for w in words],
                             'translation': [' '.join(w[len(w) // 2:]) for w in words], 'segment': range(pairs)}))
        return s
    return make
