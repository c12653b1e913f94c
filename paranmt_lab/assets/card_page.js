
// ---- The card as a component of Streamlit's: its messages arrive as `said`

const cards = new WeakMap();
export default function({data, parentElement, setTriggerValue}) {
  let card = cards.get(parentElement);
  if (!card) {
    const root = document.createElement('div');
    parentElement.append(root);
    card = new Card(root, message => setTriggerValue('said', message), document);
    cards.set(parentElement, card);
  }
  card.show(data);
  return () => { card.close(); card.root.remove(); cards.delete(parentElement); };
}
