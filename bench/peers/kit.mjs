// Shared code of the Node adapters: the same requests, items and reports as bench/kit.
// bench/README.md describes the protocol.

import readline from 'node:readline'

const number = (name) => {
  const value = Number(process.env[name])
  if (!Number.isFinite(value)) throw new Error(`${name} is missing or invalid; start the adapter through the benchmark`)
  return value
}

export const request = {
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

const OVERHEAD = 24
const LETTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_'

const padding = () => {
  let state = 0x9e3779b9 | 0
  let pad = ''
  for (let i = 0; i < request.bytes - OVERHEAD; i++) {
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
const writeEvent = (line) => process.stdout.write(JSON.stringify(line) + '\n')

const input = readline.createInterface({ input: process.stdin })
const signals = []
const waiting = []
const onSignal = () => {
  const next = waiting.shift()
  if (next) next()
  else signals.push(true)
}
input.on('line', onSignal)
input.on('close', onSignal)
const signal = () => (signals.shift() ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve)))

const begin = async (settings) => {
  writeEvent({ event: 'ready', settings })
  await signal()
}

/** One call per item, from concurrent clients. */
export const singles = async (settings, enqueue) => {
  await begin(settings)
  const begun = performance.now()
  let next = 0
  const client = async () => {
    while (next < request.count) await enqueue(item(next++))
  }
  await Promise.all(Array.from({ length: request.clients }, client))
  writeEvent({ event: 'done', items: request.count, seconds: (performance.now() - begun) / 1000 })
}

/** One call per `size` items. Creating the items is not timed. */
export const batches = async (settings, size, enqueue) => {
  await begin(settings)
  let took = 0
  for (let first = 0; first < request.count; first += size) {
    const length = Math.min(size, request.count - first)
    const batch = Array.from({ length }, (_, i) => item(first + i))
    const begun = performance.now()
    await enqueue(batch)
    took += performance.now() - begun
  }
  writeEvent({ event: 'done', items: request.count, seconds: took / 1000 })
}

/** One call per item at a steady rate; reports when each returned. */
export const produce = async (settings, enqueue) => {
  await begin(settings)
  const begun = performance.now()
  const times = []
  for (let n = 0; n < request.count; n++) {
    const wait = begun + (n * 1000) / request.rate - performance.now()
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait))
    await enqueue(item(n))
    times.push([n, now()])
  }
  writeEvent({ event: 'done', items: request.count, times })
}

/** Runs a worker until told to stop. `start` gets the function to call for each item. */
export const work = async (settings, start) => {
  let handled = 0
  let sum = 0
  let first = 0
  let reached = 0
  const times = []
  const started = (n) => {
    if (request.timeline) times.push([n, now()])
    sum += n
    if (handled === 0) first = now()
    if (++handled === request.count) reached = now()
  }
  await begin(settings)
  const stop = await start(started)
  let last = 0
  const timer = setInterval(() => {
    if (handled === last) return
    last = handled
    writeEvent({ event: 'progress', handled, first, at: reached || now() })
  }, 5)
  await signal()
  await stop()
  clearInterval(timer)
  writeEvent({ event: 'done', handled, sum, times })
}

/** Runs the requested action; an error ends the adapter. */
export const run = async (actions) => {
  try {
    await actions[request.action]()
    process.stdout.write('', () => process.exit(0))
  } catch (error) {
    console.error(error)
    process.exit(1)
  }
}
