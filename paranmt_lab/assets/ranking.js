// A ranked table. A click on a row chooses it, one on the name of a column ranks by it. All its text was escaped.

export default function({data, parentElement, setTriggerValue}) {
  let box = parentElement.querySelector('.ranking');
  if (!box) {
    box = document.createElement('div');
    box.className = 'ranking';
    box.addEventListener('change', event => setTriggerValue('chosen', {row: event.target.value}));
    box.addEventListener('click', event => {
      const column = event.target.closest('th button');
      if (column) setTriggerValue('chosen', {figure: column.value});
      else if (!event.target.closest('label') && !String(getSelection()))
        event.target.closest('tr')?.querySelector('input')?.click();
    });
    parentElement.append(box);
  }
  if (box.shown === data.html) return;
  const focused = box.contains(box.getRootNode().activeElement);
  box.innerHTML = box.shown = data.html;
  if (focused) box.querySelector('input:checked')?.focus({preventScroll: true});
}
