"""Models of the hub, from a server on this machine that answers as the hub does: fetched, pinned to a revision, refused
where the weights are a pickle, found again without a network."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from paranmt_lab.engines.marian import marian_of_ct2
from paranmt_lab.engines.protocol import Pieces
from paranmt_lab.ground.models import find_model
from paranmt_lab.ground.settings import write_json

NOW, BEFORE, DRAFT = (hashlib.sha1(name).hexdigest() for name in (b'now', b'before', b'draft'))  # commits
CHILD = """
import json, sys
from dataclasses import replace
from pathlib import Path
from paranmt_lab.ground.settings import settings
from paranmt_lab.ground.models import open_model
from paranmt_lab.engines.protocol import Decoding
s, found = replace(settings(), workspace=Path(sys.argv[1]), device='cpu'), {}
for name in sys.argv[2:]:
    try:
        engine = open_model(name, s)
        lists = engine.translate(['Kde je ten pes?', 'Zítra přijdu později.'], Decoding(2))
        found[name] = [engine.identity['model'], [hypotheses[0].text for hypotheses in lists]]
    except Exception as e: found[name] = [type(e).__name__, str(e)]
print(json.dumps(found))
"""


def as_marian(model, folder):
    "A folder like those of OPUS-MT on the hub."
    model.save_pretrained(folder)
    pieces = Pieces(find_model('marian-cs-en-tiny')).source
    for side in ('source', 'target'): shutil.copy(find_model('marian-cs-en-tiny') / f'{side}.spm', folder)
    write_json(folder / 'vocab.json', {pieces.id_to_piece(i): i for i in range(len(pieces))} | {'<pad>': len(pieces)})
    write_json(folder / 'tokenizer_config.json',
               dict(tokenizer_class='MarianTokenizer', source_lang='cs', target_lang='en',
                    eos_token='</s>', unk_token='<unk>', pad_token='<pad>'))
    return folder


def untrained():
    "Other weights with the same pieces."
    torch.manual_seed(0)
    n = len(Pieces(find_model('marian-cs-en-tiny')).source)
    model = MarianMTModel(MarianConfig(vocab_size=n + 1, d_model=16,
                                       encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
                                       decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
                                       max_position_embeddings=512, pad_token_id=n, decoder_start_token_id=n,
                                       eos_token_id=0, forced_eos_token_id=None, init_std=.5))
    model.model.shared.weight.data[-1] = 0
    return model


@pytest.fixture(scope='module')
def repositories(tmp_path_factory):
    "Repository to revision to commit, and the folder of each commit."
    folder = tmp_path_factory.mktemp('repositories')
    now = as_marian(marian_of_ct2(find_model('marian-cs-en-tiny')), folder / 'now')
    before = as_marian(untrained(), folder / 'before')
    pickled, bert = shutil.copytree(before, folder / 'pickled'), folder / 'bert'
    (pickled / 'model.safetensors').rename(pickled / 'pytorch_model.bin')
    bert.mkdir()
    write_json(bert / 'config.json', dict(model_type='bert'))
    (bert / 'model.safetensors').write_bytes(b'')
    return {'lab/tiny': ({'main': NOW, BEFORE: BEFORE, NOW: NOW}, {NOW: now, BEFORE: before}),
            'lab/pickled': ({'main': NOW, 'refs/pr/3': DRAFT}, {NOW: pickled, DRAFT: before}),
            'lab/bert': ({'main': NOW}, {NOW: bert})}


class Hub(BaseHTTPRequestHandler):
    "The answers of the hub that fetching a model needs. Weights are redirected, as large files are there."
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        path = unquote(urlsplit(self.path).path).strip('/')
        self.server.asked.append((self.command, path))
        if path.startswith('elsewhere/'): return self.file(Path('/' + path.partition('/')[2]))
        parts = path.split('/')
        name = '/'.join(parts[2:4] if parts[0] == 'api' else parts[:2])
        if name not in self.server.repositories:
            # the hub's answer to a request without a login
            return self.answer(401, b'', {'X-Error-Code': 'RepoNotFound', 'X-Error-Message': 'Repository not found'})
        revisions, commits = self.server.repositories[name]
        what, rest = (parts[4], '/'.join(parts[5:])) if parts[0] == 'api' else (parts[2], parts[3])
        if rest not in revisions and rest not in commits:
            return self.answer(404, b'',
                               {'X-Error-Code': 'RevisionNotFound', 'X-Error-Message': f'Invalid rev id: {rest}'})
        folder = commits[commit := revisions.get(rest, rest)]
        if what == 'revision':
            return self.told(dict(id=name, modelId=name, sha=commit, private=False,
                                  tags=[], downloads=0, siblings=[dict(rfilename=p.name) for p in folder.iterdir()]))
        if what == 'tree':
            return self.told([dict(type='file', path=p.name, size=p.stat().st_size, oid=self.tag(p))
                              for p in sorted(folder.iterdir())])
        file, found = folder / parts[4], {'X-Repo-Commit': commit}
        if not file.is_file(): return self.answer(404, b'', found | {'X-Error-Code': 'EntryNotFound'})
        if file.suffix != '.safetensors': return self.file(file, **found)
        self.answer(302, b'',
                    found | {'Location': f'http://localhost:{self.server.server_port}/elsewhere{file}',
                             'X-Linked-Size': str(file.stat().st_size), 'X-Linked-ETag': f'"{self.tag(file)}"'})

    do_HEAD = do_GET

    def told(self, value): self.answer(200, json.dumps(value).encode(), {'Content-Type': 'application/json'})
    def file(self, path, **headers): self.answer(200, path.read_bytes(), headers | {'ETag': f'"{self.tag(path)}"'})
    def tag(self, path): return hashlib.sha256(path.read_bytes()).hexdigest()
    def log_message(self, *args): pass

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in ({'Content-Length': str(len(body))} | headers).items(): self.send_header(name, value)
        self.end_headers()
        if self.command == 'GET': self.wfile.write(body)


@pytest.fixture
def hub(repositories):
    server = ThreadingHTTPServer(('127.0.0.1', 0), Hub)
    server.repositories, server.asked, server.address = repositories, [], f'http://127.0.0.1:{server.server_port}'
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(tmp_path, hub):
    "Opens engines in a process of its own, whose hub is that server: model and translations of each, or its error."
    def opened(*names, **environment):
        around = {k: v for k, v in os.environ.items() if not k.startswith('HF_')}
        done = subprocess.run([sys.executable, '-c', CHILD, str(tmp_path / 'work'), *names],
                              capture_output=True, text=True, timeout=600,
                              env=around | dict(HF_ENDPOINT=hub.address, HF_HOME=str(tmp_path / 'home'),
                                                HF_HUB_DISABLE_XET='1', HF_HUB_DISABLE_TELEMETRY='1',
                                                OMP_NUM_THREADS='1', no_proxy='127.0.0.1,localhost') | environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])
    return opened


A_PICKLE = 'a pickle (pytorch_model.bin) is not loaded: name a revision that has them'


def test_a_model_comes_from_the_hub_and_a_pickle_is_refused(hub, opened):
    found = opened('ct2:lab/tiny:float32', 'hf:lab/pickled')
    assert found['ct2:lab/tiny:float32'][1][0] == "Where's the dog?", found
    assert found['hf:lab/pickled'][0] == 'ValueError' and A_PICKLE in found['hf:lab/pickled'][1], found
    assert not [path for _, path in hub.asked if path.endswith('.bin')]


@pytest.mark.soak
def test_models_come_from_the_hub_and_stay(hub, opened, tmp_path):
    "Both engines, two revisions of a model, a draft beside a pickle, absent models; then the same without the hub."
    good = ['ct2:lab/tiny:float32', 'hf:lab/tiny', f'ct2:lab/tiny@{BEFORE}:float32',
            f'hf:lab/tiny@{BEFORE}', 'hf:lab/pickled@refs/pr/3', 'ct2:lab/pickled@refs/pr/3:float32']
    bad = ['ct2:lab/pickled', 'hf:lab/pickled', 'hf:lab/nonesuch', 'ct2:lab/tiny@v9', 'ct2:lab/bert', 'hf:lab/bert']
    found = opened(*good, *bad)
    assert all(isinstance(found[name][1], list) for name in good), found
    now, older = found[good[0]][1], found[good[2]][1]
    assert now[0] == "Where's the dog?" and now == found['hf:lab/tiny'][1]
    assert older != now and all(found[name][1] == older for name in good[3:])
    assert ([found[name][0] for name in good]
            == ['lab--tiny-float32', f'lab/tiny@{NOW[:10]}', f'lab--tiny@{BEFORE}-float32',
                f'lab/tiny@{BEFORE[:10]}', f'lab/pickled@{DRAFT[:10]}', 'lab--pickled@refs--pr--3-float32'])
    for name in bad[:2]:
        assert found[name][0] == 'ValueError' and 'lab--pickled' in found[name][1], found[name]
        assert A_PICKLE in found[name][1]
    assert not [path for _, path in hub.asked if path.endswith('.bin')]  # not so much as asked for
    assert found['hf:lab/nonesuch'] == ['FileNotFoundError',
                                        f"there is no model 'lab/nonesuch' at {hub.address}, or it is "
                                        "not for everybody; look at its spelling, or log in with `hf auth login`"]
    assert (found['ct2:lab/tiny@v9']
            == ['FileNotFoundError',
                f"'lab/tiny' has no revision 'v9' at {hub.address}; name a branch, a tag or a commit of it"])
    for name in bad[4:]:
        assert found[name][0] in ('FileNotFoundError', 'ValueError') and 'Marian' in found[name][1], found[name]

    fetched = {(command, path) for command, path in hub.asked if 'resolve' in path or 'elsewhere' in path}
    hub.asked.clear()
    assert opened('ct2:lab/tiny:float32')['ct2:lab/tiny:float32'][1] == now
    assert fetched
    assert not [path for _, path in hub.asked if 'resolve' in path or 'elsewhere' in path]  # nothing is fetched twice
    hub.asked.clear()
    offline = opened(*good, 'ct2:lab/unseen', HF_HUB_OFFLINE='1')
    assert not hub.asked and {name: offline[name] for name in good} == {name: found[name] for name in good}
    assert offline['ct2:lab/unseen'][0] == 'FileNotFoundError' and 'without a network' in offline['ct2:lab/unseen'][1]
