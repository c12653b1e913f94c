// A list of pairs to read. Texts go into the page as text and never as markup.
// Keys: arrows go on and back, Enter opens a pair, C copies it.

const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

class Reading {
  constructor(root, open) {
    this.root = root; this.open = open; this.shown = '';
    this.list = element('div', 'reading');
    this.list.addEventListener('keydown', event => this.pressed(event));
    this.list.addEventListener('click', event => {
      const article = event.target.closest('article');
      if (article && !String(getSelection())) { article.focus(); this.choose(article); }
    });
    root.append(this.list);
  }
  show(data) {
    const state = JSON.stringify(data.pairs);
    if (state !== this.shown) {
      this.shown = state;
      const key = element('div', 'key');
      key.append(element('mark', '', 'only on this side'), '  ', element('span', 'moved', 'on both, in another place'),
        data.opens ? '   ↑ ↓ to read, Enter opens a pair, C copies it' : '   ↑ ↓ to read, C copies it');
      const names = (data.pairs[0]?.facts ?? []).map(([name, , isNumber]) => [name, name, isNumber]);
      this.list.style.setProperty('--facts', Math.max(names.length, 1));
      const head = element('div', 'head');
      head.append(this.facts(names));
      this.list.replaceChildren(key, ...names.length ? [head] : [],
        ...data.pairs.map((pair, i) => this.article(pair, i)));
    }
    for (const article of this.list.querySelectorAll('article'))
      article.classList.toggle('chosen', article.dataset.id === String(data.chosen));
  }
  article(pair, i) {
    const made = element('article');
    made.tabIndex = i ? -1 : 0;
    made.dataset.id = pair.id;
    made.classList.toggle('named', pair.named);
    made.append(element('span', 'n', pair.n));
    for (const [side, pieces] of pair.sides) {
      const text = element('p');
      text.dataset.side = side;
      text.append(element('span', 'side', side));
      for (const [piece, kind] of pieces)
        text.append(kind ? element('mark', kind, piece) : document.createTextNode(piece));
      made.append(text);
    }
    if (pair.facts.length) made.append(this.facts(pair.facts));
    for (const [name, value] of pair.remarks) {
      const remark = element('div', 'remark', name + ' ');
      remark.append(element('b', '', value));
      made.append(remark);
    }
    return made;
  }
  // One cell for each measure: its value, or in the head its name. Numbers are at the right of their column.
  facts(cells) {
    const row = element('div', 'facts');
    for (const [name, text, isNumber] of cells) {
      const cell = element('span', isNumber ? '' : 'text', text);
      cell.title = name;
      row.append(cell);
    }
    return row;
  }
  choose(article) { this.open({pair: article.dataset.id}); }
  pressed(event) {
    const now = this.root.getRootNode().activeElement?.closest?.('article');
    if (!now || event.ctrlKey || event.metaKey || event.altKey) return;
    const go = {ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling'}[event.key];
    if (go) {
      const next = now[go];
      if (next?.localName === 'article') { next.focus({preventScroll: true}); next.scrollIntoView({block: 'nearest'}); }
    } else if (event.key === 'Enter') this.choose(now);
    else if (event.key === 'c' && !String(getSelection()))
      navigator.clipboard?.writeText([...now.querySelectorAll('p')].map(p =>
        [...p.childNodes].slice(1).map(node => node.textContent).join('')).join('\n'));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const lists = new WeakMap();
export default function({data, parentElement, setTriggerValue}) {
  let list = lists.get(parentElement);
  if (!list) {
    const root = document.createElement('div');
    parentElement.append(root);
    list = new Reading(root, message => setTriggerValue('opened', message));
    lists.set(parentElement, list);
  }
  list.show(data);
  return () => { list.root.remove(); lists.delete(parentElement); };
}
