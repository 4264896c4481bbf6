// The built-in models `logistic` and `mlp`: dense layers with ReLU between them, and cross-entropy.
//
// A model is recognised by the names and shapes of its tensors. Parameters are one vector, in the
// order in which the tensors lie in the snapshot. All sums are in double precision.

export const CLASSES = 10;
export const INPUTS = [64, 784]; // digits of 8x8 and of 28x28

const KNOWN = new Map([
  ["bias weight", { kind: "logistic", prefixes: [""] }],
  [
    "dense1.bias dense1.weight dense2.bias dense2.weight",
    { kind: "mlp", prefixes: ["dense1.", "dense2."] },
  ],
]);

/** A model that this page cannot train, told in one sentence. */
export class Unsupported extends Error {}

/** The dense layers of a model, first to last: where their weights and biases lie, and sizes. */
export function modelOf(tensors) {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const names = [...byName.keys()].sort().join(" ");
  const found = KNOWN.get(names);
  const layers = found?.prefixes.map((prefix) => layerOf(byName, prefix));
  const fits = layers?.every((layer, i) => layer && (!i || layer.inputs === layers[i - 1].outputs));
  if (!fits) {
    throw new Unsupported(
      "This page trains the built-in models logistic and mlp, and the server's model is another: " +
        "use a worker in Python.",
    );
  }
  const inputs = layers[0].inputs;
  const classes = layers.at(-1).outputs;
  if (!INPUTS.includes(inputs) || classes !== CLASSES) {
    throw new Unsupported(
      "This page trains on handwritten digits of 64 or 784 pixels in 10 classes, and the " +
        `server's model reads ${inputs} numbers and knows ${classes} classes: use a worker in Python.`,
    );
  }
  return { kind: found.kind, layers, inputs, classes };
}

function layerOf(byName, prefix) {
  const weight = byName.get(`${prefix}weight`);
  const bias = byName.get(`${prefix}bias`);
  if (weight.shape.length !== 2 || bias.shape.length !== 1) return null;
  const [outputs, inputs] = weight.shape;
  if (bias.shape[0] !== outputs || !outputs || !inputs) return null;
  return { weight: weight.start, bias: bias.start, outputs, inputs };
}

/** The outputs of every layer for `count` samples; those of hidden layers after ReLU. */
function forward(model, params, x, count) {
  const outputs = [];
  let input = x;
  model.layers.forEach((layer, number) => {
    const output = new Float64Array(count * layer.outputs);
    const hidden = number < model.layers.length - 1;
    for (let s = 0; s < count; s++) {
      for (let o = 0; o < layer.outputs; o++) {
        let sum = params[layer.bias + o];
        const row = layer.weight + o * layer.inputs;
        const from = s * layer.inputs;
        for (let i = 0; i < layer.inputs; i++) sum += params[row + i] * input[from + i];
        output[s * layer.outputs + o] = hidden && sum < 0 ? 0 : sum;
      }
    }
    outputs.push(output);
    input = output;
  });
  return outputs;
}

/** Turns each row of outputs into probabilities, in place. */
function softmax(outputs, classes) {
  for (let at = 0; at < outputs.length; at += classes) {
    const row = outputs.subarray(at, at + classes);
    const most = Math.max(...row);
    let sum = 0;
    for (let c = 0; c < classes; c++) sum += row[c] = Math.exp(row[c] - most);
    for (let c = 0; c < classes; c++) row[c] /= sum;
  }
  return outputs;
}

/** The probability of every class, for one sample or several. */
export function probabilities(model, params, x) {
  return softmax(forward(model, params, x, x.length / model.inputs).at(-1), model.classes);
}

/**
 * The mean cross-entropy of a batch and its gradient: {loss, gradient}.
 *
 * With P the probabilities and Y the labels as unit vectors, the gradient of the last outputs is
 * D = (P - Y) / batch. Of a dense layer with inputs X it is D'X for the weights, the column sums of
 * D for the biases, and DW for X; through ReLU only where its output is above 0.
 */
export function lossAndGradient(model, params, x, labels) {
  const count = labels.length;
  const outputs = forward(model, params, x, count);
  let delta = softmax(outputs.at(-1), model.classes);
  let loss = 0;
  for (let s = 0; s < count; s++) {
    const at = s * model.classes + labels[s];
    loss -= Math.log(Math.max(delta[at], 1e-30)) / count;
    delta[at] -= 1;
  }
  for (let i = 0; i < delta.length; i++) delta[i] /= count;
  const gradient = new Float64Array(params.length);
  for (let number = model.layers.length - 1; number >= 0; number--) {
    const input = number ? outputs[number - 1] : x;
    delta = backward(model.layers[number], params, input, delta, gradient, number > 0);
  }
  return { loss, gradient };
}

/** Adds a layer's gradient, and returns that of its inputs where these come out of a ReLU. */
function backward(layer, params, input, delta, gradient, hidden) {
  const count = delta.length / layer.outputs;
  const before = hidden ? new Float64Array(count * layer.inputs) : null;
  for (let s = 0; s < count; s++) {
    const from = s * layer.inputs;
    for (let o = 0; o < layer.outputs; o++) {
      const d = delta[s * layer.outputs + o];
      const row = layer.weight + o * layer.inputs;
      gradient[layer.bias + o] += d;
      for (let i = 0; i < layer.inputs; i++) gradient[row + i] += d * input[from + i];
      if (!hidden) continue;
      for (let i = 0; i < layer.inputs; i++) {
        if (input[from + i] > 0) before[from + i] += d * params[row + i];
      }
    }
  }
  return before;
}
