// Snapshots and updates as bytes: the safetensors files of docs/protocol.md.

const MOST_HEADER = 1 << 20;
const WIDTHS = { F32: 4, F64: 8 };

/** No snapshot, told in one sentence. */
export class Malformed extends Error {}

/** A snapshot as it was pulled: {version, run, epoch, tensors, params}; Malformed if it is none. */
export function readSnapshot(buffer) {
  try {
    return snapshotOf(parts(buffer));
  } catch (error) {
    if (error instanceof Malformed) throw error;
    throw new Malformed("The header of the server's model is damaged: tell the operator.");
  }
}

function snapshotOf({ header, data }) {
  const { __metadata__: known = {}, ...entries } = header;
  const tensors = [];
  let next = 0;
  const dtype = Object.values(entries)[0]?.dtype;
  const width = WIDTHS[dtype];
  const inOrder = Object.entries(entries).sort((a, b) => a[1].data_offsets[0] - b[1].data_offsets[0]);
  for (const [name, { dtype: own, shape, data_offsets: [from, to] }] of inOrder) {
    const size = shape.reduce((product, n) => product * n, 1);
    if (!width || own !== dtype || from !== next || to - from !== width * size || to > data.byteLength) {
      throw new Malformed("The model's tensors do not follow each other as they should.");
    }
    if (!name.startsWith("extra:")) tensors.push({ name, shape, start: from / width, size });
    next = to;
  }
  const version = Number(known.version);
  if (!/^\d{1,15}$/.test(known.version) || !known.run) throw new Malformed("The model has no version.");
  const count = tensors.reduce((sum, tensor) => sum + tensor.size, 0);
  const params = new Float64Array(count);
  const view = new DataView(data.buffer, data.byteOffset);
  for (let i = 0; i < count; i++) {
    params[i] = width === 4 ? view.getFloat32(4 * i, true) : view.getFloat64(8 * i, true);
  }
  return { version, run: known.run, epoch: known.epoch, tensors, params };
}

function parts(buffer) {
  const length = buffer.byteLength < 8 ? 0 : Number(new DataView(buffer).getBigUint64(0, true));
  if (!length || length > MOST_HEADER || 8 + length > buffer.byteLength) {
    throw new Malformed("The server's answer is no safetensors file.");
  }
  const text = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(buffer, 8, length));
  return { header: JSON.parse(text), data: new Uint8Array(buffer, 8 + length) };
}

/**
 * An update: the direction under the model's tensor names as F32, with what the server must know.
 *
 * `facts` are the metadata of docs/protocol.md; those that are undefined are left out.
 */
export function writeUpdate(tensors, direction, facts) {
  const known = Object.entries(facts).filter(([, value]) => value !== undefined);
  const header = { __metadata__: Object.fromEntries(known.map(([k, v]) => [k, String(v)])) };
  for (const { name, shape, start, size } of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [4 * start, 4 * (start + size)] };
  }
  let head = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(head.length / 8) * 8).fill(32); // spaces: data lie on 8s
  padded.set(head);
  head = padded;
  const body = new ArrayBuffer(8 + head.length + 4 * direction.length);
  const view = new DataView(body);
  view.setBigUint64(0, BigInt(head.length), true);
  new Uint8Array(body).set(head, 8);
  direction.forEach((value, i) => view.setFloat32(8 + head.length + 4 * i, value, true));
  return body;
}
