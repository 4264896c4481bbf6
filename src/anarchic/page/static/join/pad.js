// A canvas to draw a digit on, by pointer or by keyboard. Strokes are lists of points in 0..1.

const STEP = 0.04; // of the keyboard's pen
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Pad {
  /** `changed` is called with the strokes after each of them, and when they are cleared. */
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.strokes = [];
    this.pen = null; // where the keyboard's pen is
    this.down = false; // whether it draws
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => this.#end(event));
    }
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#liftPen());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.draw();
  }

  clear() {
    this.strokes = [];
    this.pen = null;
    this.down = false;
    this.draw();
    this.changed(this.strokes);
  }

  draw() {
    const { width } = this.canvas;
    const paper = this.canvas.getContext("2d");
    const style = getComputedStyle(this.canvas);
    paper.clearRect(0, 0, width, width);
    Object.assign(paper, { lineCap: "round", lineJoin: "round", lineWidth: width / 13 });
    paper.strokeStyle = style.color;
    for (const stroke of this.strokes) {
      paper.beginPath();
      paper.moveTo(width * stroke[0][0], width * stroke[0][1]);
      for (const [x, y] of stroke) paper.lineTo(width * x, width * y);
      paper.stroke();
    }
    if (this.pen) {
      Object.assign(paper, { strokeStyle: style.accentColor, lineWidth: 3 });
      paper.beginPath();
      paper.arc(width * this.pen[0], width * this.pen[1], width / 22, 0, 7);
      paper.stroke();
    }
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const inside = (value) => Math.min(1, Math.max(0, value));
    return [inside((event.clientX - box.x) / box.width), inside((event.clientY - box.y) / box.height)];
  }

  #begin(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drawing = event.pointerId;
    this.pen = null;
    this.strokes.push([this.#at(event)]);
    this.draw();
  }

  #move(event) {
    if (event.pointerId !== this.drawing) return;
    this.strokes.at(-1).push(this.#at(event));
    this.draw();
  }

  #end(event) {
    if (event.pointerId !== this.drawing) return;
    this.drawing = null;
    this.changed(this.strokes);
  }

  #key(event) {
    if (event.key === " ") {
      this.pen ??= [0.5, 0.2];
      if (this.down) this.#liftPen();
      else this.#lowerPen();
    } else if (event.key in ARROWS) {
      const [dx, dy] = ARROWS[event.key];
      const [x, y] = this.pen ?? [0.5, 0.2];
      const inside = (value) => Math.min(0.95, Math.max(0.05, value));
      this.pen = [inside(x + STEP * dx), inside(y + STEP * dy)];
      if (this.down) this.strokes.at(-1).push(this.pen);
    } else {
      return;
    }
    event.preventDefault();
    this.draw();
  }

  #lowerPen() {
    this.down = true;
    this.strokes.push([this.pen]);
  }

  #liftPen() {
    if (!this.down) return;
    this.down = false;
    this.changed(this.strokes);
  }
}
