
// ---- The card in the output of a notebook cell: it hears keys only while it has the focus

class Guest extends Card {
  draw() { // the new card gets the focus that the old one had
    const had = this.keys.contains(document.activeElement);
    super.draw();
    if (had && !this.keys.contains(document.activeElement)) this.keys.focus({preventScroll: true});
  }
}

export default {
  render({model, el}) {
    const label = 'rating card: click here, then rate by key';
    const frame = make('div', {className: 'paranmt-rating', tabIndex: 0, 'data-lm-suppress-shortcuts': 'true',
      'aria-label': label});
    const root = make('div'), guidelines = make('div', {className: 'guidelines', hidden: model.get('ready')});
    guidelines.innerHTML = model.get('guidelines'); // made of Markdown by Python, which lets no HTML through
    const start = make('button', {onclick: () => model.send({act: 'start'})}, 'I have read the guidelines: start');
    const first = make('div', {className: 'card'}, start);
    frame.append(root, guidelines);
    if (!model.get('ready')) frame.append(first);
    el.append(frame);
    const send = message => {
      if (message.act === 'guidelines') guidelines.hidden = !guidelines.hidden;
      else model.send(message);
    };
    const card = new Guest(root, send, frame);
    const show = () => { if (model.get('ready')) card.show(model.get('data')); };
    const begin = () => {
      guidelines.hidden = true;
      first.remove();
      show();
      frame.focus({preventScroll: true});
    };
    frame.addEventListener('click', () => {
      if (!frame.contains(document.activeElement)) frame.focus({preventScroll: true});
    });
    model.on('change:data', show);
    model.on('change:ready', begin);
    show();
    return () => { model.off('change:data', show); model.off('change:ready', begin); card.close(); frame.remove(); };
  }
};
