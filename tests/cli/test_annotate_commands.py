"""`paranmt annotate`: the commands of version 0.1, order of arguments, settings files, backups, other tools."""
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from command import paranmt as run_command
from paranmt_lab.annotation.campaigns import campaign_items, read_campaign
from paranmt_lab.annotation.exports import answer_table
from paranmt_lab.annotation.queue import campaign_states
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings


@pytest.fixture
def paranmt(tmp_path, monkeypatch):
    """Runs a command in a workspace of its own, which has the corpus `talk`, and `m` of its pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('PARANMT_ANNOTATIONS', raising=False)
    def run(line, code=0):
        done = run_command(line, PARANMT_WORKSPACE=str(tmp_path / 'data'), COLUMNS='200')
        assert done.returncode == code, done.stdout + done.stderr
        return done
    pairs = dict(reference=[f'Tram {k} is late.' for k in range(8)], translation=[f'Tram {k} came.' for k in range(8)])
    pd.DataFrame(pairs).to_csv('talk.tsv', sep='\t', index=False)
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path / 'data'))
    corpus.write_pairs(0, pairs)
    corpus.write_measure('m', 0, np.linspace(.1, 1, 8, dtype=np.float32))
    return run


@pytest.fixture
def log(tmp_path, paranmt):
    """The database of that workspace, with the campaign `first`."""
    paranmt('annotate new talk first --measure m --range 0:1 --n 3')
    return EventLog(f"sqlite:///{tmp_path}/data/annotations.sqlite")


def one_line(done, new):
    """Checks that standard error says the new words in a single line."""
    [line] = done.stderr.splitlines()
    assert f'paranmt {new}' in line
    return done.stdout


def test_commands_of_the_earlier_version_work_with_a_line_on_standard_error(paranmt, log, tmp_path):
    pause = paranmt('annotate pause first --message "Back on Monday."')
    said = one_line(pause, "annotate status first paused --message 'Back on Monday.'")
    assert said == 'Campaign first is paused. Back on Monday.\n'
    assert 'closed' in one_line(paranmt('annotate close first'), 'annotate status first closed')
    assert campaign_states(log) == dict(first='closed')
    assert 'open' in one_line(paranmt('annotate open first'), 'annotate status first open')
    assert 'bytes' in one_line(paranmt('annotate backup ratings.sqlite'), 'annotate export all ratings.sqlite')
    log.path.unlink()
    said = one_line(paranmt('annotate restore ratings.sqlite first'), 'annotate import ratings.sqlite first')
    assert said == 'Campaign first: 0 answers, 6 to come\n'
    assert len(campaign_items(EventLog(log.url), 'first')) == 3


@pytest.mark.parametrize('line, why', [
    ('new second talk --measure none', 'the source comes first and the new name last (talk second)'),
    ('import theirs theirs.csv', 'the file comes first and the new name last (theirs.csv theirs)'),
    ('status paused first', 'the campaign comes first: first paused'),
])
def test_an_exchanged_order_is_recognised(paranmt, log, tmp_path, line, why):
    (tmp_path / 'theirs.csv').write_text('annotator,reference,translation,strength\n')
    before = len(log)
    assert why in ' '.join(paranmt(f'annotate {line}', code=2).stderr.replace('│', ' ').split())
    assert len(log) == before


def test_settings_come_from_a_file_and_options(paranmt, log, tmp_path):
    (tmp_path / 'campaign.toml').write_text('measure = "m"\nranges = ["0:0.5", "0.5:1"]\nn = 2\nlease = 5.0\n')
    paranmt('annotate new talk file --config campaign.toml --overlap 1 --set gap=3')
    plan = read_campaign(log, 'file')
    assert (plan.measure, plan.ranges, plan.n, plan.lease) == ('m', ((0., .5), (.5, 1.)), 2, 5.)
    assert (plan.overlap, plan.gap, plan.seed) == (1, 3, 0)


def test_a_backup_is_recognised_by_its_content_and_holds_every_campaign(paranmt, log, tmp_path):
    paranmt('annotate new talk second --measure none --n 2')
    paranmt('annotate export all ratings.sqlite')
    (tmp_path / 'ratings.sqlite').rename(tmp_path / 'ratings.db')
    paranmt('annotate import ratings.db again --campaign second')
    assert len(campaign_items(log, 'again')) == 2


@pytest.mark.parametrize('line, code, why', [
    ('export first new.sqlite', 2, 'annotate export all new.sqlite'),
    ('export all new.sqlite --pseudonyms', 2, 'a backup has the names'),
    ('export all new.sqlite --at 1', 2, 'is of now'),
    ('export all new.csv', 2, 'all campaigns go into a backup'),
    ('import nowhere.sqlite first', 1, 'is no file'),
    ('import talk.tsv x --campaign first', 2, 'is no backup'),
    ('status first --message Monday', 2, 'a message goes with a new state'),
])
def test_options_that_would_be_ignored_are_refused(paranmt, log, tmp_path, line, code, why):
    assert why in ' '.join(paranmt(f'annotate {line}', code).stderr.replace('│', ' ').split())
    assert not list(tmp_path.glob('new.*'))


HOSTILE = '<script>alert(1)</script> =1+1 \u202e \U0001f40e'


def rated(tmp_path, *annotations):
    "A file of answers as Label Studio exports it: the tasks of campaign `first`, the first with annotations."
    tasks = json.loads((tmp_path / 'tasks.json').read_text(encoding='utf-8'))
    for task in tasks: task['annotations'] = []
    tasks[0]['annotations'] = list(annotations)
    (tmp_path / 'answers.json').write_text(json.dumps(tasks))
    return tasks


def annotation(who, *results, **fields):
    "An annotation of Label Studio; a result is (question, kind, answers)."
    result = [dict(from_name=name, to_name='translation', value={kind: answers}) for name, kind, answers in results]
    return dict(completed_by=who, result=result, was_cancelled=False, created_at='2026-03-01T09:00:00Z') | fields


STRONG = 'strength', 'choices', ['3']


def test_pairs_are_rated_in_label_studio(paranmt, log, tmp_path):
    printed = paranmt('annotate export first tasks.json').stdout
    assert '<Choices name="strength" toName="translation"' in printed
    with_comment = annotation(7, STRONG, ('fluency', 'choices', ['2']), ('comment', 'text', [HOSTILE]))
    email = annotation(dict(id=1, email='Ada@example.org'), ('reason', 'choices', ['OCR']))
    tasks = rated(tmp_path, with_comment, email, annotation(8, STRONG, was_cancelled=True))
    assert len(tasks) == len(campaign_items(log, 'first'))
    paranmt('annotate import answers.json theirs')
    table = answer_table(log, 'theirs').to_pandas().set_index('annotator')
    assert table.state.to_dict() == {'user-7': 'rated', 'Ada@example.org': 'discarded', 'user-8': 'skipped'}
    assert table.loc['user-7', ['strength', 'fluency']].tolist() == [3, 2]
    assert table.comment['user-7'] == HOSTILE and pd.isna(table.strength['user-8'])
    for name in ('item', 'pair_id', 'stratum', 'weight', 'reference', 'translation'):
        assert set(table[name]) == {tasks[0]['data'][name]}


@pytest.mark.parametrize('bad, why', [
    (annotation(7), 'task 1, annotation 2: neither strength nor fluency'),
    (annotation(7, ('strength', 'choices', ['1', '3'])), "strength '1, 3': expected 1, 2 or 3"),
    (annotation(7, STRONG, ('reason', 'choices', ['OCR'])), 'a mark and a reason to discard (OCR); delete one'),
    (annotation(7, ('reason', 'choices', ['dull'])), "reason 'dull': expected bad segmentation"),
    (annotation('', STRONG), 'no annotator'),
    (annotation(8, STRONG), 'user-8 has answered item'),
    (annotation(None, STRONG), 'not as Label Studio writes it'),
    (dict(result=3, completed_by=7), 'export the project from Label Studio in the format JSON'),
    ([], 'task 1, annotation 2: not as Label Studio writes it')])
def test_an_answer_that_cannot_be_used_is_named_and_nothing_is_imported(paranmt, log, tmp_path, bad, why):
    paranmt('annotate export first tasks.json')
    rated(tmp_path, annotation(8, STRONG), bad)
    before = len(log)
    assert why in ' '.join(paranmt('annotate import answers.json theirs', code=1).stderr.split())
    assert len(log) == before


def test_a_file_without_answers_is_refused(paranmt, log, tmp_path):
    paranmt('annotate export first tasks.json')
    rated(tmp_path)
    assert 'no answer' in ' '.join(paranmt('annotate import answers.json theirs', code=1).stderr.split())


ADA, BEN = '2070ba45-bdc8-418b-b340-7ecd7530f9be', '7f1d7c34-0d0f-4f43-a3a4-6a4e6d0a9b10'


def records(tmp_path):
    "The records of campaign `first`, as Argilla has them before anyone has answered."
    return json.loads((tmp_path / 'first.argilla/records.json').read_text(encoding='utf-8'))


def flat(record, *responses):
    "A record of Argilla's `to_list(flatten=True)`; a response is (question, value, user, status)."
    row = dict(id=record['id'], status='completed', _server_id=ADA) | record['fields'] | record['metadata']
    for question in dict.fromkeys(question for question, *_ in responses):
        values, users, states = zip(*(rest for name, *rest in responses if name == question))
        row |= {f'{question}.responses': list(values), f'{question}.responses.users': list(users),
                f'{question}.responses.status': list(states)}
    return row | {'fluency.responses': None, 'fluency.responses.users': None, 'fluency.responses.status': None}


def nested(record, *responses):
    "A record of Argilla's `to_disk`."
    answers = {}
    for question, value, user, _ in responses: answers.setdefault(question, []).append(dict(value=value, user_id=user))
    return record | dict(responses=answers)


SURE = 'strength', 3, ADA, 'submitted'


def test_a_dataset_of_argilla_has_questions_and_hidden_facts_of_the_campaign(paranmt, log, tmp_path):
    assert "from_disk('first.argilla'" in paranmt('annotate export first first.argilla').stdout
    settings, dataset = (json.loads((tmp_path / f'first.argilla/.argilla/{name}.json').read_text())
                         for name in ('settings', 'dataset'))
    assert dataset == dict(name='first')
    assert settings['distribution'] == dict(strategy='overlap', min_submitted=2)
    assert {q['name']: q['required'] for q in settings['questions']} == dict(
        strength=True, fluency=True, reason=False, comment=False)
    assert not any(fact['visible_for_annotators'] for fact in settings['metadata'])
    assert [record['id'] for record in records(tmp_path)] == ['1', '2', '3']


def test_answers_of_argilla_keep_rater_state_and_item(paranmt, log, tmp_path):
    paranmt('annotate export first first.argilla')
    one, two, three = records(tmp_path)
    comment = 'comment', HOSTILE, ADA, 'submitted'
    refused = ('strength', 1, ADA, 'discarded'), ('reason', 'OCR', ADA, 'discarded')
    draft, skipped = ('strength', 2, BEN, 'draft'), ('strength', 2, BEN.upper(), 'discarded')
    rows = [flat(one, SURE, comment, draft), flat(two, *refused), flat(three, skipped)]
    (tmp_path / 'answers.json').write_text(json.dumps(rows))
    said = paranmt('annotate import answers.json theirs').stderr
    assert '1 draft left out' in ' '.join(said.split())
    table = answer_table(log, 'theirs').to_pandas()
    assert table.annotator.tolist() == [f'user-{ADA}', f'user-{ADA}', f'user-{BEN}']
    assert table.state.tolist() == ['rated', 'discarded', 'skipped']
    assert table.strength.dropna().tolist() == [3] and table.comment[0] == HOSTILE
    items = campaign_items(log, 'first')
    for name in ('item', 'pair_id', 'stratum', 'weight', 'reference', 'translation'):
        assert table[name].tolist() == items[name].tolist()


def test_a_folder_of_argilla_is_read_with_a_note_on_drafts(paranmt, log, tmp_path):
    paranmt('annotate export first first.argilla')
    one, *others = records(tmp_path)
    (tmp_path / 'first.argilla/records.json').write_text(json.dumps([nested(one, SURE), *others]))
    said = paranmt('annotate import first.argilla theirs').stderr
    assert 'a draft counts as an answer' in ' '.join(said.split())
    assert answer_table(log, 'theirs').to_pandas()[['item', 'strength']].values.tolist() == [[1, 3]]
    (tmp_path / 'first.argilla/records.json').unlink()
    assert 'records.json' in paranmt('annotate import first.argilla other', code=1).stderr


@pytest.mark.parametrize('change, why', [
    (lambda r: flat(r, SURE, SURE), f'record 1: two answers of user-{ADA} to strength; delete one'),
    (lambda r: flat(r, SURE, ('strength', 2, ADA.upper(), 'submitted')), 'two answers of'),
    (lambda r: flat(r, SURE, ('reason', 'OCR', ADA, 'draft')), 'is submitted and draft'),
    (lambda r: flat(r, SURE, ('reason', 'OCR', ADA, 'submitted')), 'a mark and a reason to discard (OCR)'),
    (lambda r: nested(r, SURE, ('reason', 'OCR', ADA, '')), 'dataset.records.to_list(flatten=True)'),
    (lambda r: flat(r, ('strength', 3, 'ada', 'submitted')), "user 'ada' is no number of a user of Argilla"),
    (lambda r: flat(r, ('strength', 3, None, 'submitted')), "user 'None' is no number"),
    (lambda r: flat(r, ('strength', 3, ADA, 'done')), "status 'done', expected submitted, discarded, draft"),
    (lambda r: flat(r, ('strength', 3, ADA, ['draft'])), "record 1"),
    (lambda r: flat(r, ('strength', [1, 3], ADA, 'submitted')), "strength '1, 3': expected 1, 2 or 3"),
    (lambda r: flat(r, ('strength', True, ADA, 'submitted')), "strength 'True': expected 1, 2 or 3"),
    (lambda r: flat(r, ('comment', 'so', ADA, 'submitted')), 'neither strength nor fluency'),
    (lambda r: flat(r, SURE) | dict(reference=None), 'reference or translation is missing'),
    (lambda r: flat(r, SURE) | {'strength.responses.users': []}, 'not a user and status for each response'),
    (lambda r: flat(r, SURE) | {'strength.responses': 3}, 'not as Argilla writes it'),
    (lambda r: r | dict(responses=[3]), 'not as Argilla writes it'),
    (lambda r: r | dict(fields=3), 'not as Argilla writes it'),
    (lambda r: r, 'no answer in any task'),
    (lambda r: dict(text='It rains.', label=3), 'no data or no annotations; export the project from Label Studio'),
    (lambda r: 3, 'no data or no annotations')])
def test_a_bad_response_of_argilla_is_named_and_nothing_is_imported(paranmt, log, tmp_path, change, why):
    paranmt('annotate export first first.argilla')
    (tmp_path / 'answers.json').write_text(json.dumps([change(records(tmp_path)[0])]))
    before = len(log)
    said = ' '.join(paranmt('annotate import answers.json theirs', code=1).stderr.split())
    assert 'answers.json' in said and why in said
    assert len(log) == before
