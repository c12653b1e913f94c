"""Vectors of a file of sentences: a stop request leaves nothing behind, and a file may have any size."""
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest

from paranmt_lab.encoders.files import encode_file


class Counting:
    "Encodes a line as its number."
    dim, identity = 1, dict(name='counting')

    def __init__(self, stop_after=None): self.batches, self.stop_after = 0, stop_after

    def encode(self, sentences):
        self.batches += 1
        if self.batches == self.stop_after: signal.raise_signal(signal.SIGINT)
        return np.array([[int(s)] for s in sentences], np.float32)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / 'lines.txt'
    path.write_text('\ufeff' + ''.join(f'{n}\r\n' for n in range(1000)), encoding='utf-8')
    return path


@pytest.mark.parametrize('ending', ['npy', 'parquet'])
def test_every_line_has_its_vector(lines, tmp_path, ending):
    to = tmp_path / f'vectors.{ending}'
    assert encode_file(Counting(), lines, to, batch=300, show=False) == 1000
    read = np.load if ending == 'npy' else lambda path: np.stack(pq.read_table(path)['vector'].to_pylist())
    assert read(to).ravel().tolist() == list(range(1000))
    assert pq.ParquetFile(to).num_row_groups == 4 if ending == 'parquet' else True


@pytest.mark.parametrize('ending', ['npy', 'parquet'])
def test_a_stop_request_leaves_nothing_behind(lines, tmp_path, ending):
    encoder = Counting(stop_after=2)
    assert encode_file(encoder, lines, tmp_path / f'vectors.{ending}', batch=300, show=False) == 0
    assert encoder.batches == 2 and [path.name for path in tmp_path.iterdir()] == ['lines.txt']
