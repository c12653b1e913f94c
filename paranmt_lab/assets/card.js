// The rating card: one pair, a mark by key on each scale of the campaign's scheme, and the next pair. The page Annotate
// and the notebook widget show it.
// Texts go into the page as text nodes, never as HTML.

const LETTERS = ['', 'q', 'w', 'e', 'r']; // keys of a second scale; the digits are those of the first without a mark
const AGAIN = 1500; // milliseconds after which a message is sent again, until the server has acknowledged it
const PATIENCE = 4000; // milliseconds until the rater is told that the server does not answer
const BURST = 600; // milliseconds: a key so soon after one that was not taken belongs to the same answer

function make(tag, fields = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

function clock(seconds) {
  if (seconds === null || seconds === undefined) return '';
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

// ---- The card: a root to draw into, a function that takes messages, and the element whose keys it hears

class Card {
  constructor(root, send, keys) {
    Object.assign(this, {root, send, keys, data: {}, marks: {}, mode: 'rate'});
    Object.assign(this, {pending: null, slow: false, typed: null, source: false, marked: false});
    Object.assign(this, {refused: -Infinity, sent: 0});
    this.hear = event => this.key(event);
    keys.addEventListener('keydown', this.hear, true);
  }

  close() {
    this.keys.removeEventListener('keydown', this.hear, true);
    this.acknowledge();
  }

  show(data) { // what Python sends; a new token is a new turn
    const fresh = data.token !== this.data.token || data.item !== this.data.item;
    const answered = this.pending && data.heard === this.pending.id ? this.pending : null;
    if (fresh || answered) Object.assign(this, {marks: {}, mode: 'rate', typed: null});
    if (fresh) this.source = false;
    if (answered && !fresh && answered.act === 'comment') Object.assign(this, {mode: 'comment', typed: answered.text});
    if (answered) this.acknowledge();
    this.data = data;
    this.draw();
  }

  get waiting() { return this.pending !== null; }

  acknowledge() {
    clearInterval(this.timer);
    Object.assign(this, {pending: null, slow: false});
  }

  can(act) { return !this.data.can || this.data.can.includes(act); }

  acts() { // a pair that was answered before has acts of its own, so that no late message takes one for the other
    return this.data.own ? {rate: 'revise', discard: 'retract'} : {rate: 'rate', discard: 'discard'};
  }

  // ---- Messages and marks: one message at a time is sent, again and again until Python has heard it; meanwhile no
  // other key is taken. Its token makes it one answer, however often it arrives.

  say(act, more = {}) {
    if (this.waiting || !this.can(act)) return;
    const id = `${this.data.token}-${this.sent++}`, start = Date.now();
    this.pending = {act, token: this.data.token, item: this.data.item, ...more, id};
    this.send(this.pending);
    this.timer = setInterval(() => {
      this.send(this.pending);
      if (this.slow || Date.now() - start < PATIENCE) return;
      this.slow = true;
      this.draw();
    }, AGAIN);
    this.draw();
  }

  mark(scale, n) {
    if (this.waiting || this.data.item === undefined) return;
    this.marks[scale] = n;
    if (this.data.scales.every(({name}) => this.marks[name])) this.say(this.acts().rate, {...this.marks});
    else this.draw();
  }

  forget() {
    if (this.waiting) return;
    this.marks = {};
    this.draw();
  }

  enter(mode) {
    const there = mode === 'back' ? this.data.answers > 0 : this.data.item !== undefined;
    if (this.waiting || !there || !this.can(this.acts()[mode] || mode)) return;
    this.mode = this.mode === mode ? 'rate' : mode;
    this.draw();
  }

  toggle(name) {
    this[name] = !this[name];
    this.draw();
  }

  guidelines() { if (!this.waiting) this.send({act: 'guidelines', token: this.data.token}); }

  // ---- Keys: looked up at each press, since 1 is a strength, a fluency or a reason

  key(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector('[role=dialog]')) return;
    if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
    const act = this.action(event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    const now = performance.now();
    if (this.waiting || now - this.refused < BURST) this.refused = now;
    else if (!event.repeat) act();
  }

  action(key) { // the action of a key, if it has one now
    if (key === 'u') return () => this.say('undo');
    if (key === '?') return () => this.guidelines();
    if (key === 'b') return () => this.enter('back');
    if (this.data.item === undefined) return null;
    if (key === 'Escape' && this.mode !== 'rate') return () => this.enter(this.mode);
    if (key === 'Escape' && this.data.own) return () => this.say('return');
    const reasons = this.data.reasons || [], n = Number(key);
    if (this.mode === 'discard' && n >= 1 && n <= reasons.length) {
      return () => this.say(this.acts().discard, {reason: reasons[n - 1]});
    }
    const {scales, discard} = this.data, letter = scales[1] ? LETTERS.indexOf(key) : 0;
    const first = scales.find(({name}) => !this.marks[name]) || scales.at(-1);
    if (this.mode === 'rate' && n >= 1 && n <= first.marks.length) return () => this.mark(first.name, n);
    if (this.mode === 'rate' && letter >= 1 && letter <= scales[1].marks.length) {
      return () => this.mark(scales[1].name, letter);
    }
    return {
      s: () => this.say('skip'),
      [discard[1]]: () => this.enter('discard'),
      c: () => this.enter('comment'),
      o: () => this.toggle('source'),
      v: () => this.toggle('marked'),
      Backspace: () => this.forget(),
    }[key];
  }

  // ---- Drawing: the whole card each time; a comment that is being typed is carried over

  draw() {
    const field = this.root.querySelector('textarea, input'), typed = field ? field.value : null;
    const seat = make('div', {className: 'seat'}, this.data.seat || '');
    const className = 'card' + (this.waiting ? ' waiting' : '');
    this.root.replaceChildren(make('div', {className}, seat, this.head(), ...this.body(), this.foot(), this.told()));
    const now = this.root.querySelector('textarea, input');
    if (!now) return;
    if (typed !== null && now.tagName === field.tagName) now.value = typed;
    now.focus();
  }

  head() {
    const standing = this.data.standing || {}, all = standing.done + standing.left;
    const bar = make('progress', {max: Math.max(all, 1), value: standing.done, 'aria-label': 'pairs answered'});
    const far = [`${standing.done} of ${all}`];
    if (standing.pace) far.push(`${standing.pace.toFixed(1)} s a pair`);
    if (standing.left && standing.time_left) far.push(`${clock(standing.time_left)} left`);
    return make('div', {className: 'head'}, bar, make('span', {className: 'how-far'}, far.join(' · ')));
  }

  body() {
    const number = this.mode === 'back' ? this.number() : null;
    if (this.data.empty) return [make('p', {className: 'empty'}, this.data.empty.message), number];
    const training = 'Training: the right answer comes afterwards';
    const source = [[this.data.source || 'This pair has no source.', false]];
    const middle = {discard: () => this.why(), comment: () => this.note(), rate: () => this.scales(), back: () => number};
    return [this.data.training ? make('div', {className: 'training'}, training) : null, this.former(),
      this.side('Reference', this.data.reference), this.side('Translation', this.data.translation),
      this.source ? this.side('Source', source) : null, middle[this.mode]()];
  }

  former() { // the answer that the rater has gone back to
    const own = this.data.own;
    if (!own) return null;
    const answer = own.strength ? this.inWords(own, ', ') : `discarded, ${own.reason}`;
    return make('div', {className: 'training former'},
      `Your answer ${own.number}: ${answer}. Answer again to change it, or press Escape to leave it as it is.`);
  }

  inWords(marks, between) { return this.data.scales.map(({name}) => `${name} ${marks[name]}`).join(between); }

  side(name, pieces) { // a text, with the words that differ marked for those who wish
    const text = pieces.map(([piece, differs]) => differs && this.marked ? make('mark', {}, piece) : piece);
    return make('div', {className: 'side'}, make('div', {className: 'label'}, name),
      make('p', {dir: 'auto', 'data-side': name.toLowerCase()}, ...text));
  }

  // ---- The middle: the scales, the reasons for discarding, or a field for a comment

  scales() {
    const open = this.data.scales.findIndex(({name}) => !this.marks[name]);
    return make('div', {className: 'scales'}, ...this.data.scales.map((scale, i) => this.scale(scale, i, i === open)));
  }

  scale({name: scale, title: name, marks}, place, open) {
    const key = n => open ? String(n) : (place && LETTERS[n]) || '';
    const buttons = marks.map((meaning, i) => {
      const n = i + 1, chosen = this.marks[scale] === n, former = this.data.own && this.data.own[scale] === n;
      const fields = {className: chosen ? 'chosen' : (former && 'former') || '', disabled: this.waiting, 'aria-pressed': String(chosen)};
      return make('button', {...fields, onclick: () => this.mark(scale, n)},
        make('b', {}, String(n)), ' ' + meaning, make('kbd', {}, key(n)));
    });
    return make('div', {className: 'scale', role: 'group', 'aria-label': name},
      make('div', {className: 'label'}, name), make('div', {className: 'marks'}, ...buttons));
  }

  why() {
    const buttons = this.data.reasons.map((reason, i) => {
      const onclick = () => this.say(this.acts().discard, {reason});
      return make('button', {disabled: this.waiting, onclick}, reason, make('kbd', {}, String(i + 1)));
    });
    return make('div', {className: 'scale'}, make('div', {className: 'label'}, 'Why can this pair not be judged?'),
      make('div', {className: 'marks'}, ...buttons));
  }

  note() {
    const save = () => {
      const text = this.root.querySelector('textarea').value;
      Object.assign(this, {mode: 'rate', typed: text});
      this.say('comment', {text});
    };
    const onkeydown = event => {
      event.stopPropagation();
      if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); save(); }
      if (event.key === 'Escape') this.enter('comment');
    };
    const value = this.typed === null ? this.data.comment || '' : this.typed;
    const field = make('textarea', {maxLength: 2000, rows: 2, value, 'aria-label': 'comment', onkeydown});
    const button = make('button', {onclick: save}, 'Save', make('kbd', {}, 'Enter'));
    return make('div', {className: 'scale'}, make('div', {className: 'label'}, 'Comment'), field, button);
  }

  number() { // the answer to go back to: the one before, unless the rater types another number
    const own = this.data.own, value = Math.max(1, own ? own.number - 1 : this.data.answers);
    const go = () => {
      const number = Number(this.root.querySelector('input').value);
      this.mode = 'rate';
      this.say('back', {number});
    };
    const onkeydown = event => {
      event.stopPropagation();
      if (event.key === 'Enter') { event.preventDefault(); go(); }
      if (event.key === 'Escape') this.enter('back');
    };
    const name = `Go back to answer number (1 to ${this.data.answers})`;
    const field = make('input', {type: 'number', min: 1, max: this.data.answers, value, 'aria-label': name, onkeydown});
    const button = make('button', {onclick: go}, 'Go', make('kbd', {}, 'Enter'));
    return make('div', {className: 'scale'}, make('div', {className: 'label'}, name), field, button);
  }

  // ---- Below: the other keys as buttons, and what became of the last answer

  foot() {
    const rating = this.data.item !== undefined;
    const button = (name, key, act, there = true) => there ? make('button',
      {className: 'quiet', disabled: this.waiting, onclick: act}, name, make('kbd', {}, key)) : null;
    return make('div', {className: 'foot'},
      button('Current pair', 'Esc', () => this.say('return'), Boolean(this.data.own)),
      button('Undo', 'u', () => this.say('undo'), this.can('undo')),
      button('Back to ...', 'b', () => this.enter('back'), this.data.answers > 0 && this.can('back')),
      button('Skip', 's', () => this.say('skip'), rating && this.can('skip')),
      button(...this.data.discard, () => this.enter('discard'), rating && this.can(this.acts().discard)),
      button(this.data.comment ? 'Comment ✓' : 'Comment', 'c', () => this.enter('comment'),
        rating && this.can('comment')),
      button('Source', 'o', () => this.toggle('source'), rating),
      button('Differences', 'v', () => this.toggle('marked'), rating),
      button('Guidelines', '?', () => this.guidelines()));
  }

  told() {
    const said = this.data.said, right = said && said.right;
    const late = 'No answer from the server yet. Your answer is kept here and sent again until it is saved: '
      + 'leave this page open.';
    if (this.slow) return make('div', {className: 'told bad', role: 'alert'}, late);
    if (!said) return make('div', {className: 'told', role: 'status'});
    const fields = {className: 'told ' + (said.good ? 'good' : 'bad'), role: said.good ? 'status' : 'alert'};
    const answer = right && `Right were ${this.inWords(right, ' and ')}. ${right.explanation}`;
    return make('div', fields, said.text, right ? make('div', {className: 'right'}, answer) : null);
  }
}
