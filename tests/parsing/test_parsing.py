"""Parsers: trees of real sentences, input that looks like commands, programs that crash or hang."""
import os
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.models import identity_of, open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.parsing import columns, parsers as link
from paranmt_lab.parsing.columns import parse_corpus, parses_by_id, parses_path, unparsed_shards
from paranmt_lab.parsing.parsers import LinkParser
from paranmt_lab.parsing.trees import Tree, read_tree, top_levels, tree_text

needs_link = pytest.mark.skipif(not shutil.which('link-parser'), reason="needs Debian's link-grammar")
AWKWARD = ['', ' ', '!quit', '!exit', '!!dog', '%comment', '*starred', '!width=20000', 'width set to 20000', '((((',
           '))))', '(S (NP x))', '{a} {b}', 'a\nb\n\nc', 'a\0b', '\ud800', '👍🏽 ok', '東京は晴れです', '…', '-' * 300,
           'no ' * 200, '<b>bold</b> & "quoted" \\ back', "'tis o'clock; don't.", '\x1b[31m red', 'é' * 100,
           'Found 3 linkages']


@needs_link
def test_each_sentence_keeps_its_own_tree_whatever_stands_beside_it():
    parser = open_model('link:en', gives='Parser', seconds=2)
    marked = [f'Dog {word} barks.' for word in ('one', 'two', 'three')] * 10
    mixed = [x for pair in zip(marked, AWKWARD * 2) for x in pair]
    alone, together = parser.parse(marked), parser.parse(mixed)
    assert together[::2] == alone and None not in alone
    assert all(word in tree.words() for word, tree in zip(('one', 'two', 'three'), alone))
    awkward = dict(zip(AWKWARD, parser.parse(AWKWARD)))
    assert all(awkward[text] is None for text in ('', ' ', '((((', '…', '-' * 300))
    assert all(tree is None or tree.words() for tree in awkward.values())


@needs_link
def test_trees_of_real_sentences():
    path = settings().resources / 'train/bitext/cs-en.parquet'
    if not path.exists(): pytest.skip('the Czech bitext is not among the resources')
    texts = pd.read_parquet(path, columns=['reference']).reference.sample(60, random_state=3).tolist()
    trees = LinkParser().parse(texts)
    found = [tree for tree in trees if tree]
    assert len(found) > 52
    whole = LinkParser(whole=True).parse(texts)
    assert sum(t is not None for t in whole) < len(found)
    assert all(b is None or a is not None for a, b in zip(trees, whole))
    for tree, text in zip(trees, texts):  # the words of a tree stand in the sentence, in order
        letters = ''.join(c for c in text.lower().replace('’', "'") if c.isalnum())
        at = 0
        for word in tree.words() if tree else ():
            word = ''.join(c for c in word.lower() if c.isalnum())
            assert (at := letters.find(word, at)) >= 0, (word, text)
            at += len(word)


def program(tmp_path, monkeypatch, body):
    """Puts a shell script called link-parser before the real one."""
    script = tmp_path / 'link-parser'
    script.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo link-grammar-0.1; exit; fi\n' + body)
    script.chmod(0o755)
    monkeypatch.setenv('PATH', f"{tmp_path}:{os.environ['PATH']}")


LOOP = '''while read -r line; do
  case "$line" in *bad*) {bad};; !*) echo "width set to 20000";; *) echo "(S (NP $line))";; esac
done
'''


@pytest.mark.parametrize('bad', ['exit 139', 'exec sleep 60', 'exit 0', 'echo "width set to 20000"'])
def test_a_sentence_that_breaks_the_program_costs_only_itself(tmp_path, monkeypatch, bad):
    program(tmp_path, monkeypatch, LOOP.format(bad=bad))
    monkeypatch.setattr(link, 'STARTUP', 0.3)
    trees = LinkParser(seconds=0).parse(['one', 'two', 'a bad one', 'three', 'four'])
    assert [tree and ' '.join(tree.words()) for tree in trees] == ['one', 'two', None, 'three', 'four']


def test_progress_and_identity(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, LOOP.format(bad='exit 1'))
    done = []
    parser = open_model('link:en:whole')
    assert len(parser.parse(['x'] * 120, done.append)) == 120 and sum(done) == 120
    assert parser.parse([]) == []
    assert identity_of('link:en:whole') == parser.identity
    assert parser.identity != identity_of('link:en') and parser.identity['version'] == '0.1'


def test_what_is_absent_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match='expected link:en or link:en:whole'): open_model('link:en:half')
    with pytest.raises(ValueError, match='opens as Parser, expected Translator'):
        open_model('link:en', gives='Translator')
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(FileNotFoundError, match='apt-get install link-grammar'): open_model('link:en')
    monkeypatch.setenv('STANZA_RESOURCES_DIR', str(tmp_path))
    with pytest.raises((FileNotFoundError, ValueError), match=r'stanza\.download|paranmt-lab\[parsing\]'):
        open_model('stanza:en')


def test_trees_in_brackets():
    tree = read_tree('(ROOT (S (NP (PRP it)) (VP (VBZ rains)) (. .)))')
    assert (tree.words(), top_levels(tree)) == (['it', 'rains', '.'], 'S(NP VP .)')
    assert read_tree('(S (NP a b) (VP ))') == Tree('S', (Tree('NP', (Tree('w', ('a',)), Tree('w', ('b',)))),))
    assert read_tree('(S (NP x))', lambda text: None) is None


class Dies:
    "A parser that is killed at its third call."
    identity = dict(parser='link')
    calls = 0

    def parse(self, sentences, advance=None):
        Dies.calls += 1
        if Dies.calls == 3: raise KeyboardInterrupt
        return [Tree('S', (Tree('w', (text,)),)) if text != 'none' else None for text in sentences]


def test_the_parses_of_a_corpus_resume_after_a_kill_and_belong_to_their_pairs(tmp_path, monkeypatch):
    s = replace(settings(), workspace=tmp_path)
    monkeypatch.setattr(columns, 'BLOCK', 2)
    corpus = Corpus.create('talk', s)
    for shard in (0, 1):
        corpus.write_pairs(shard, dict(reference=[f'a{shard}', 'b', 'none', 'd', 'e'],
                                       translation=['f', None, 'g(', 'h', 'b']))
    with pytest.raises(KeyboardInterrupt): parse_corpus(corpus, Dies(), show=False)
    assert unparsed_shards(corpus, 'link') == [0, 1] and len(list(corpus.folder.glob('cache/parses/*'))) == 2
    counts = parse_corpus(corpus, Dies(), show=False)
    assert Dies.calls == 3 + 4 and not list(corpus.folder.glob('cache/parses/*'))
    assert counts == dict(reference=dict(sentences=10, without_tree=2), translation=dict(sentences=8, without_tree=0))
    ids = corpus.frame(['pair_id']).pair_id[::-1]
    found, texts = parses_by_id(corpus, 'link', ids), corpus.pairs_by_id(ids, ['reference', 'translation'])
    for side in ('reference', 'translation'):
        for tree, text in zip(found[side], texts[side]):
            expected = None if pd.isna(text) or text == 'none' else tree_text(Tree('S', (Tree('w', (text,)),)))
            assert (None if pd.isna(tree) else tree) == expected


@needs_link
def test_two_processes_parse_a_corpus_as_one_does(tmp_path, monkeypatch):
    sentences = [f'The dog number {n} barks.' for n in range(8)]
    files = []
    for workers in (1, 2):
        corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path / str(workers)))
        for shard in (0, 1): corpus.write_pairs(shard, dict(reference=sentences[shard::2], translation=sentences[:4]))
        assert parse_corpus(corpus, 'link:en', workers, show=False)['reference']['without_tree'] == 0
        files.append([parses_path(corpus, 'link:en', shard).read_bytes() for shard in (0, 1)])
    assert files[0] == files[1]
