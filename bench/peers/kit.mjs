// What the adapters written for Node share: the same orders, items and reports as bench/kit.
// The protocol is described in bench/README.md.

import readline from 'node:readline'

const number = (name) => {
  const value = Number(process.env[name])
  if (!Number.isFinite(value)) throw new Error(`the order needs ${name}: start the adapter through the benchmark`)
  return value
}

export const order = {
  action: process.argv[2],
  url: process.env.DATABASE_URL,
  count: number('BENCH_COUNT'),
  bytes: number('BENCH_BYTES'),
  clients: Math.max(1, number('BENCH_CLIENTS')),
  best: process.env.BENCH_SETTINGS === 'best',
  rate: number('BENCH_RATE'),
  delaySeconds: number('BENCH_DELAY_SECONDS'),
  timeline: process.env.BENCH_TIMELINE === '1'
}

const FRAME = 24
const LETTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_'

const padding = () => {
  let state = 0x9e3779b9 | 0
  let pad = ''
  for (let i = 0; i < order.bytes - FRAME; i++) {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    pad += LETTERS[state >>> 26]
  }
  return pad
}

const pad = padding()
const item = (n) => (pad ? { n, pad } : { n })

const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000)
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

const input = readline.createInterface({ input: process.stdin })
const told = []
const waiting = []
const hear = () => {
  const next = waiting.shift()
  if (next) next()
  else told.push(true)
}
input.on('line', hear)
input.on('close', hear)
const harness = () => (told.shift() ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve)))

const begin = async (settings) => {
  say({ event: 'ready', settings })
  await harness()
}

/** One call per item, from as many clients at once as ordered. */
export const singles = async (settings, enqueue) => {
  await begin(settings)
  const begun = performance.now()
  let next = 0
  const client = async () => {
    while (next < order.count) await enqueue(item(next++))
  }
  await Promise.all(Array.from({ length: order.clients }, client))
  say({ event: 'done', items: order.count, seconds: (performance.now() - begun) / 1000 })
}

/** One call per `size` items. Items are made while the clock stands. */
export const batches = async (settings, size, enqueue) => {
  await begin(settings)
  let took = 0
  for (let first = 0; first < order.count; first += size) {
    const length = Math.min(size, order.count - first)
    const batch = Array.from({ length }, (_, i) => item(first + i))
    const begun = performance.now()
    await enqueue(batch)
    took += performance.now() - begun
  }
  say({ event: 'done', items: order.count, seconds: took / 1000 })
}

/** One call per item at a steady rate; says when each returned. */
export const produce = async (settings, enqueue) => {
  await begin(settings)
  const begun = performance.now()
  const times = []
  for (let n = 0; n < order.count; n++) {
    const wait = begun + (n * 1000) / order.rate - performance.now()
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait))
    await enqueue(item(n))
    times.push([n, now()])
  }
  say({ event: 'done', items: order.count, times })
}

/** Runs a worker until told to stop. `start` gets the function to call for each item. */
export const work = async (settings, start) => {
  let handled = 0
  let sum = 0
  let first = 0
  let reached = 0
  const times = []
  const started = (n) => {
    if (order.timeline) times.push([n, now()])
    sum += n
    if (handled === 0) first = now()
    if (++handled === order.count) reached = now()
  }
  await begin(settings)
  const stop = await start(started)
  let last = 0
  const teller = setInterval(() => {
    if (handled === last) return
    last = handled
    say({ event: 'progress', handled, first, at: reached || now() })
  }, 5)
  await harness()
  await stop()
  clearInterval(teller)
  say({ event: 'done', handled, sum, times })
}

/** Runs the ordered action; anything that fails ends the adapter with an error. */
export const run = async (actions) => {
  try {
    await actions[order.action]()
    process.stdout.write('', () => process.exit(0))
  } catch (error) {
    console.error(error)
    process.exit(1)
  }
}
