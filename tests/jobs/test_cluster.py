"""Both executors of the stages on a Ray cluster of two nodes, one of which is killed in the middle: the shards are byte
for byte those of one process."""
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import pandas as pd
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.settings import settings
from paranmt_lab.translate.driver import translate_corpus

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError: ray = None

pytestmark = pytest.mark.skipif(
    ray is None, reason='Ray is not installed, so the cluster was NOT tested: pip install "paranmt-lab[ray]"')
MODEL, MEASURES = 'ct2:marian-cs-en-tiny', ['trigram_overlap', 'reference_length']


def ports():
    "Free ports for a node's helpers: Ray waits up to fifteen seconds for a helper whose port is not named."
    names = 'metrics_agent_port', 'metrics_export_port', 'runtime_env_agent_port'
    with ExitStack() as held:
        return {name: held.enter_context(socket.create_server(('127.0.0.1', 0))).getsockname()[1] for name in names}


@pytest.fixture()
def cluster(monkeypatch):
    "Two nodes of one processor each."
    for tries in range(3): # the port of the fourth helper cannot be named, so a busy machine may still be too late
        made = Cluster()
        try:
            made.add_node(num_cpus=1, include_dashboard=False, **ports())
            second = made.add_node(num_cpus=1, **ports()); break
        except Exception as e:
            made.shutdown()
            if 'timed out' not in str(e).lower(): raise
            if tries == 2: pytest.skip(f'Ray itself did not start in three tries, so the cluster was NOT tested: {e}')
    made.wait_for_nodes()
    monkeypatch.setenv('RAY_ADDRESS', made.address)
    yield made, second
    ray.shutdown()
    made.shutdown()


@pytest.fixture()
def lab(tmp_path):
    lab = replace(settings(), workspace=tmp_path, workers=1)
    rows = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3)
    rows = rows[rows.source.str.len() < 80].head(240).assign(source_lang='cs')
    talk = Corpus.create('talk', lab)
    for shard in range(4): talk.write_pairs(shard, rows.iloc[60 * shard:60 * shard + 60])
    return lab


def test_a_lost_node_changes_nothing(cluster, lab):
    (made, second), talk = cluster, Corpus.open('talk', lab)
    parts = lab.corpora / 'spread/cache/translate/translations'
    def kill():
        while len(list(parts.glob('part-*'))) < 4: time.sleep(.05)
        killed.append(len(list(parts.glob('part-*'))))
        made.remove_node(second, allow_graceful=False)
    killed, killer = [], threading.Thread(target=kill, daemon=True)
    killer.start()
    spread = translate_corpus(talk, 'spread', MODEL, lab, Decoding(8, 4), part_size=10, cluster='ray')
    killer.join(60)
    calm = translate_corpus(talk, 'calm', MODEL, lab, Decoding(8, 4), part_size=10)
    assert killed and killed[0] < 12, f'the node was killed with {killed} of 24 parts done'
    assert spread.checksums == calm.checksums and 'finished' in spread.manifest('translate')
    assert [p.read_bytes() for p in spread.shards] == [p.read_bytes() for p in calm.shards]
    on_ray = score(spread, MEASURES, cluster='ray')
    assert on_ray.equals(score(calm, MEASURES))
    for name in MEASURES:
        files = [[p.read_bytes() for p in sorted((c.folder / 'measures' / name).glob('part-*'))]
                 for c in (spread, calm)]
        assert files[0] == files[1] and len(files[0]) == 4
    with pytest.raises(FileNotFoundError, match='no model'):
        translate_corpus(talk, 'other', 'ct2:nonesuch', lab, cluster='ray')
