// What a worker trains on: a share of the digits that come with the package, and drawn digits.

// Mean and standard deviation of the pixels, by which Python workers normalise too.
const NORMS = { 64: [0.3058, 0.3762], 784: [0.1307, 0.3081] };
const RECORD = 65; // bytes per digit: its label, then 64 pixels of 0 to 16

/** Pixels in [0, 1] as a model with that many inputs reads them. */
export function normalised(pixels) {
  const [mean, deviation] = NORMS[pixels.length];
  return Float32Array.from(pixels, (value) => (value - mean) / deviation);
}

/** Share `number` of `of` (both counted from 1): every of-th digit of the file, which is in order
 *  of label, so that each share has some of every class. */
export function shareOf(buffer, number, of) {
  const bytes = new Uint8Array(buffer);
  const samples = [];
  for (let at = (number - 1) * RECORD; at + RECORD <= bytes.length; at += of * RECORD) {
    const pixels = Float64Array.from(bytes.subarray(at + 1, at + RECORD), (value) => value / 16);
    samples.push({ x: normalised(pixels), label: bytes[at] });
  }
  return samples;
}

/** A drawing as a model with that many inputs reads it. Strokes are lists of points [x, y]. */
export function drawn(strokes, inputs) {
  return normalised(inputs === 784 ? mnistForm(strokes) : digitsForm(strokes));
}

const INK = 0.305; // share of the 32x32 pixels that ink takes in the embedded digits, of any class
const PENS = [1, 7]; // thinnest and thickest pen, in pixels of 32x32

/**
 * 8x8 as the UCI digits are made: fill the height of 32x32, centre, count the ink of 4x4 blocks.
 *
 * In those digits every class has the same ink: their strokes were made thicker or thinner. So is
 * the pen here.
 */
export function digitsForm(strokes) {
  let [thin, thick] = PENS;
  let bitmap = null;
  for (let turn = 0; turn < 12; turn++) {
    const pen = (thin + thick) / 2;
    const path = fitted(strokes, 32, [26 - pen, 32 - pen]);
    bitmap = rendered(path, 32).map((distance) => (distance <= pen / 2 ? 1 : 0));
    const ink = bitmap.reduce((sum, bit) => sum + bit, 0) / bitmap.length;
    if (ink < INK) thin = pen;
    else thick = pen;
  }
  const blocks = new Float64Array(64);
  bitmap.forEach((bit, i) => {
    blocks[8 * Math.floor(i / 128) + Math.floor((i % 32) / 4)] += bit / 16;
  });
  return blocks;
}

/** 28x28 as MNIST is made: fitted into 20x20, grey at the edges, the centre of mass in the middle. */
export function mnistForm(strokes) {
  const pen = 2.4;
  const path = fitted(strokes, 28, [20 - pen, 20 - pen]);
  const [dx, dy] = offCentre(inked(path, pen), 28);
  return inked(path.map((stroke) => stroke.map(([x, y]) => [x - dx, y - dy])), pen);
}

function inked(path, pen) {
  return rendered(path, 28).map((distance) => Math.min(1, Math.max(0, pen / 2 + 0.5 - distance)));
}

/** How far the centre of mass lies from the middle. */
function offCentre(pixels, size) {
  let [mass, x, y] = [0, 0, 0];
  pixels.forEach((value, i) => {
    mass += value;
    x += value * ((i % size) + 0.5);
    y += value * (Math.floor(i / size) + 0.5);
  });
  return mass ? [x / mass - size / 2, y / mass - size / 2] : [0, 0];
}

/** The strokes in the middle of a square, as large as fits into a box [width, height]. */
function fitted(strokes, size, [width, height]) {
  const points = strokes.flat();
  const [left, right] = range(points.map(([x]) => x));
  const [top, bottom] = range(points.map(([, y]) => y));
  const scale = Math.min(width / (right - left || 1e-9), height / (bottom - top || 1e-9));
  const place = ([x, y]) => [
    size / 2 + scale * (x - (left + right) / 2),
    size / 2 + scale * (y - (top + bottom) / 2),
  ];
  return strokes.map((stroke) => stroke.map(place));
}

function range(values) {
  return values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
}

/** The distance of every pixel's middle from the strokes. */
function rendered(path, size) {
  const segments = path.flatMap((stroke) => stroke.map((p, i) => [p, stroke[i + 1] ?? p]));
  return Float64Array.from({ length: size * size }, (_, i) => {
    const [px, py] = [(i % size) + 0.5, Math.floor(i / size) + 0.5];
    return segments.reduce((least, segment) => Math.min(least, distance(px, py, segment)), Infinity);
  });
}

function distance(px, py, [[ax, ay], [bx, by]]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const t = length ? Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / length)) : 0;
  return Math.hypot(px - ax - t * dx, py - ay - t * dy);
}
