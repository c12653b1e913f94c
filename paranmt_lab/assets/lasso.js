// A map of sentences to draw lassos on. Texts go into the page as text and never as markup.
// Drag draws a lasso, Shift and drag moves the map, the wheel zooms, a double click shows all. By keyboard the arrows
// move a crosshair (with Shift by a pixel), Space sets a corner there, Backspace takes it back, Enter closes the lasso
// or, without a corner, picks the nearest sentence, + and - zoom. Escape takes the lasso off.

const PAD = 14, REACH = 8, CORNERS = 60, STEP = 16;
const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

// Corners of a path that keep its shape: those farther than `slack` pixels from the line between their neighbours.
const corners = (path, slack) => {
  if (path.length < 3) return path;
  const [[x, y], [u, v]] = [path[0], path.at(-1)], length = Math.hypot(u - x, v - y);
  const gaps = path.map(([p, q]) => length
    ? Math.abs((u - x) * (q - y) - (v - y) * (p - x)) / length : Math.hypot(p - x, q - y));
  const far = gaps.indexOf(Math.max(...gaps));
  if (gaps[far] <= slack) return [path[0], path.at(-1)];
  return [...corners(path.slice(0, far + 1), slack).slice(0, -1), ...corners(path.slice(far), slack)];
};

class Lasso {
  constructor(root, send) {
    this.root = root; this.send = send; this.version = ''; this.path = this.from = this.cross = null; this.under = -1;
    this.key = element('p', 'key');
    this.box = element('div', 'box');
    this.below = element('canvas'); this.above = element('canvas', 'above'); this.tip = element('div', 'tip');
    this.tip.hidden = true;
    this.tip.setAttribute('role', 'status');
    this.above.tabIndex = 0;
    this.above.setAttribute('role', 'application');
    this.above.setAttribute('aria-label', 'Map of sentences. Drag to draw a lasso. By keyboard: arrows move a crosshair, '
      + 'Space sets a corner, Enter closes the lasso or picks the nearest sentence, Escape takes the lasso off.');
    this.box.append(this.below, this.above, this.tip);
    root.append(this.key, this.box);
    const on = (name, act) => this.above.addEventListener(name, act.bind(this));
    on('pointerdown', this.down); on('pointermove', this.move); on('pointerup', this.up);
    on('pointercancel', this.stop); on('pointerleave', () => this.hover(null)); on('blur', this.stop);
    on('dblclick', () => { clearTimeout(this.later); this.view = this.whole(); this.draw(); });
    on('keydown', this.press);
    this.above.addEventListener('wheel', event => {
      event.preventDefault();
      this.zoom(this.spot(event), Math.exp(Math.max(-.4, Math.min(.4, event.deltaY / 400))));
    }, {passive: false});
    this.size = new ResizeObserver(() => this.fit());
    this.size.observe(this.box);
  }
  leave() { clearTimeout(this.later); this.size.disconnect(); this.root.remove(); }

  show(data) {
    const anew = data.version !== this.version;
    this.data = data; this.version = data.version;
    this.box.style.height = `${data.height}px`;
    if (anew) this.view = this.whole();
    this.key.replaceChildren(element('b', 'name', data.title), ...data.legend.flatMap(([name, colour]) => {
      const dot = element('span', 'dot');
      dot.style.background = colour;
      return [dot, element('span', 'name', name)];
    }));
    this.fit();
  }
  // The part of the plane that is seen: all points, at first.
  whole() {
    const ends = values => {
      let [low, high] = [Infinity, -Infinity];
      for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
      if (!Number.isFinite(low)) return [-1, 1];
      return low < high ? [low, high] : [low - 1, low + 1];
    };
    return [...ends(this.data.x), ...ends(this.data.y)];
  }
  fit() {
    const {clientWidth: width, clientHeight: height} = this.box, ratio = window.devicePixelRatio || 1;
    if (!width || !this.data) return;
    for (const canvas of [this.below, this.above]) {
      canvas.width = width * ratio; canvas.height = height * ratio;
      canvas.getContext('2d').setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.width = width; this.height = height;
    this.draw();
  }
  left(x) { const [low, high] = this.view; return PAD + (x - low) / (high - low) * (this.width - 2 * PAD); }
  top(y) { const [, , low, high] = this.view; return PAD + (high - y) / (high - low) * (this.height - 2 * PAD); }
  place([px, py]) {
    const [x0, x1, y0, y1] = this.view;
    const [across, down] = [(px - PAD) / (this.width - 2 * PAD), (py - PAD) / (this.height - 2 * PAD)];
    return [x0 + across * (x1 - x0), y1 - down * (y1 - y0)];
  }
  spot(event) {
    const edge = this.above.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  }

  draw() {
    if (!this.width) return;
    const {x, y, shade, palette, removed, faint, edges, large} = this.data, pen = this.below.getContext('2d');
    pen.clearRect(0, 0, this.width, this.height);
    pen.globalAlpha = .7; pen.strokeStyle = '#b8b8b8'; pen.lineWidth = 1; pen.beginPath();
    for (const [x1, y1, x2, y2] of edges) {
      pen.moveTo(this.left(x1), this.top(y1)); pen.lineTo(this.left(x2), this.top(y2));
    }
    pen.stroke();
    const wide = x.length < 5000 ? 2.9 : 1.8, plain = x.length > 20_000 ? .45 : .75;
    for (let i = 0; i < x.length; i++) {
      const px = this.left(x[i]), py = this.top(y[i]), radius = large?.[i] ? 2 * wide : wide;
      pen.globalAlpha = faint?.[i] ? .12 : plain;
      pen.beginPath(); pen.arc(px, py, radius, 0, 7);
      if (removed?.[i]) { pen.strokeStyle = '#b8b8b8'; pen.stroke(); }
      else { pen.fillStyle = palette[shade[i]]; pen.fill(); }
    }
    pen.globalAlpha = 1;
    this.write(pen);
    this.outline();
  }
  // Names of clusters of the level that fits the zoom, and sentences of the reader.
  write(pen) {
    const {names, typed} = this.data, all = this.whole(), [low, high] = this.view;
    const share = (high - low) / (all[1] - all[0]), level = share > .55 ? 0 : share > .28 ? 1 : 2;
    pen.textAlign = 'center'; pen.lineJoin = 'round';
    const style = getComputedStyle(this.box), family = style.fontFamily;
    const [ink, paper] = ['--st-text-color', '--st-background-color'].map(name => style.getPropertyValue(name));
    const text = (words, px, py, look) => {
      pen.font = look; pen.lineWidth = 4; pen.strokeStyle = paper; pen.fillStyle = ink;
      pen.globalAlpha = .8; pen.strokeText(words, px, py);
      pen.globalAlpha = 1; pen.fillText(words, px, py);
    };
    for (const name of names.filter(name => name.level === level))
      text(name.label, this.left(name.x), this.top(name.y), `700 13px ${family}`);
    for (const one of typed) {
      const px = this.left(one.x), py = this.top(one.y);
      pen.beginPath(); pen.moveTo(px, py - 7); pen.lineTo(px + 7, py); pen.lineTo(px, py + 7); pen.lineTo(px - 7, py);
      pen.closePath(); pen.fillStyle = '#c8374a'; pen.fill();
      text(one.sentence, px, py - 11, `12px ${family}`);
    }
  }
  // What lies over the points: the lasso, rings around neighbours and the sentence that was picked, the crosshair.
  outline() {
    const pen = this.above.getContext('2d'), {x, y, ids, near, picked, outline} = this.data;
    pen.clearRect(0, 0, this.width, this.height);
    const path = this.path || outline.map(([x, y]) => [this.left(x), this.top(y)]);
    pen.strokeStyle = '#c4701c'; pen.lineWidth = 1.5; pen.beginPath();
    path.forEach(([px, py], i) => i ? pen.lineTo(px, py) : pen.moveTo(px, py));
    if (this.cross && this.path) pen.lineTo(...this.cross);
    pen.closePath();
    pen.fillStyle = 'rgba(196, 112, 28, .15)'; pen.fill('evenodd'); pen.stroke();
    pen.strokeStyle = '#c8374a'; pen.lineWidth = 2;
    for (const i of [picked ? ids.indexOf(picked) : -1, this.under, ...(near[this.under] || [])].filter(i => i >= 0)) {
      pen.beginPath(); pen.arc(this.left(x[i]), this.top(y[i]), 6, 0, 7); pen.stroke();
    }
    if (!this.cross) return;
    const [px, py] = this.cross;
    pen.strokeStyle = getComputedStyle(this.box).getPropertyValue('--st-text-color'); pen.beginPath();
    pen.moveTo(px - 12, py); pen.lineTo(px + 12, py); pen.moveTo(px, py - 12); pen.lineTo(px, py + 12); pen.stroke();
  }

  press(event) {
    const {key} = event, by = ARROWS[key], middle = [this.width / 2, this.height / 2];
    if (key === 'Escape') { this.stop(); return this.send('drawn', []); }
    if (!by && ![' ', 'Enter', 'Backspace', '+', '-'].includes(key)) return;
    event.preventDefault();
    this.cross ||= middle;
    const step = event.shiftKey ? 1 : STEP;
    if (by) this.cross = this.cross.map((p, k) => Math.max(0, Math.min(2 * middle[k], p + step * by[k])));
    else if (key === ' ') this.path = [...this.path || [], this.cross];
    else if (key === 'Backspace') this.path = this.path?.length > 1 ? this.path.slice(0, -1) : null;
    else if (key === 'Enter') return this.path ? this.close(this.path) : this.click(this.cross, this.width);
    else this.zoom(this.cross, key === '+' ? .8 : 1.25);
    this.hover(this.cross);
  }
  down(event) {
    if (event.button) return;
    this.above.focus({preventScroll: true});
    this.above.setPointerCapture(event.pointerId);
    this.cross = null; this.hover(null);
    if (event.shiftKey) this.from = this.spot(event);
    else this.path = [this.spot(event)];
  }
  move(event) {
    const spot = this.spot(event);
    if (this.from) this.pan(spot);
    else if (!this.path || !event.buttons) this.hover(spot);
    else if (Math.hypot(...this.path.at(-1).map((p, k) => p - spot[k])) > 2) { this.path.push(spot); this.outline(); }
  }
  up(event) {
    const path = this.path;
    if (!path) return this.stop();
    const wide = Math.max(...[0, 1].map(k => Math.max(...path.map(p => p[k])) - Math.min(...path.map(p => p[k]))));
    if (wide >= 5) return this.close(path);
    this.stop();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.click(path[0]), 250);  // unless it begins a double click
  }
  close(path) {
    let slack = 1, shape = corners(path, slack);
    while (shape.length > CORNERS) shape = corners(path, slack *= 1.5);
    this.data.outline = shape.map(spot => this.place(spot).map(value => Number(value.toPrecision(6))));
    this.stop();
    this.send('drawn', this.data.outline);
  }
  stop() { this.path = this.from = this.cross = null; if (this.data) this.outline(); }
  click(spot, reach = REACH) {
    const i = this.nearest(spot, reach);
    if (i >= 0) this.send('picked', this.data.ids[i]);
    else if (this.data.outline.length) this.send('drawn', []);
  }
  pan(spot) {
    const [a, b] = [this.place(this.from), this.place(spot)];
    this.view = this.view.map((end, k) => end + (k < 2 ? a[0] - b[0] : a[1] - b[1]));
    this.from = spot;
    this.draw();
  }
  zoom(spot, by) {
    const [x, y] = this.place(spot);
    this.view = this.view.map((end, k) => (k < 2 ? x : y) + (end - (k < 2 ? x : y)) * by);
    this.draw();
  }
  nearest([px, py], reach) {
    let best = -1, least = reach;
    for (let i = 0; i < this.data.x.length; i++) {
      const gap = Math.hypot(this.left(this.data.x[i]) - px, this.top(this.data.y[i]) - py);
      if (gap < least) { least = gap; best = i; }
    }
    return best;
  }
  hover(spot) {
    const i = this.under = spot && this.data.texts.length ? this.nearest(spot, this.cross ? 3 * REACH : REACH) : -1;
    this.tip.hidden = i < 0;
    this.outline();
    if (i < 0) return;
    this.tip.replaceChildren(...this.data.texts[i].map(([name, text]) => {
      const line = element('div');
      line.append(element('b', '', name), ' ', text);
      return line;
    }));
    this.tip.style.left = `${Math.min(spot[0] + 12, Math.max(0, this.width - 380))}px`;
    this.tip.style.top = `${spot[1] + 14}px`;
  }
}

const maps = new WeakMap();
export default function({data, parentElement, setTriggerValue}) {
  let map = maps.get(parentElement);
  if (!map) {
    const root = document.createElement('div');
    parentElement.append(root);
    map = new Lasso(root, setTriggerValue);
    maps.set(parentElement, map);
  }
  map.show(data);
  return () => { map.leave(); maps.delete(parentElement); };
}
