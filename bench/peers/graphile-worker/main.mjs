// graphile-worker, through its library: addJob, addJobs and run.

import { Logger, makeWorkerUtils, run as runWorker } from 'graphile-worker'
import pg from 'pg'
import { batches, request, produce, run, singles, work } from '../kit.mjs'

const logger = new Logger(() => (level, message) => {
  if (level === 'error') console.error(message)
})
const BULK = 1000

const utilities = async (connections) => {
  const pgPool = new pg.Pool({ connectionString: request.url, max: connections })
  // It asks for both handlers, on the pool and on each of its connections.
  pgPool.on('error', (error) => console.error(error))
  pgPool.on('connect', (client) => client.on('error', (error) => console.error(error)))
  // All connections before the clock starts.
  await Promise.all(Array.from({ length: connections }, () => pgPool.query('select pg_sleep(0.1)')))
  return makeWorkerUtils({ pgPool, logger })
}

// What its performance page recommends: a local queue, completions batched, many jobs at once.
const best = {
  concurrentJobs: 1000,
  localQueue: { size: 1001 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
  maxPoolSize: 10
}

await run({
  setup: async () => {
    const utils = await utilities(2)
    await utils.migrate()
    await utils.release()
  },
  singles: async () => {
    const utils = await utilities(request.clients)
    await singles('addJob', (item) => utils.addJob('bench', item))
  },
  bulk: async () => {
    const utils = await utilities(1)
    const runAt = request.delaySeconds ? new Date(Date.now() + request.delaySeconds * 1000) : undefined
    await batches('addJobs of 1,000', BULK, (items) =>
      utils.addJobs(items.map((payload) => ({ identifier: 'bench', payload, runAt })))
    )
  },
  produce: async () => {
    const utils = await utilities(1)
    await produce('addJob', (item) => utils.addJob('bench', item))
  },
  work: async () => {
    // A local queue makes a job wait for its fellows; for pick-up time its own advice is to leave it off.
    const drain = request.best && !request.timeline
    const preset = drain ? { worker: { ...best, connectionString: request.url } } : undefined
    const settings = drain
      ? 'concurrentJobs 1,000, localQueue 1,001, completeJobBatchDelay 0, 10 connections'
      : request.best
        ? 'concurrency 10, pollInterval default (LISTEN)'
        : 'run() with its defaults (concurrency 1)'
    await work(settings, async (started) => {
      const runner = await runWorker({
        connectionString: request.url,
        preset,
        ...(request.best && !drain ? { concurrency: 10 } : {}),
        logger,
        noHandleSignals: true,
        taskList: { bench: (payload) => { started(payload.n) } }
      })
      return () => runner.stop()
    })
  }
})
