// pg-boss, through its library: send, insert and work.

import { PgBoss } from 'pg-boss'
import { batches, request, produce, run, singles, work } from '../kit.mjs'

const BULK = 1000
const QUEUE = 'bench'
// NOTIFY is a property of the queue: for pick-up time there is one that has it.
const QUICK = 'bench-notify'
const queue = request.best && (request.timeline || request.action === 'produce') ? QUICK : QUEUE

const boss = async (options) => {
  const it = new PgBoss({ connectionString: request.url, supervise: false, schedule: false, ...options })
  it.on('error', (error) => console.error(error))
  await it.start()
  return it
}

await run({
  setup: async () => {
    const it = await boss({ max: 2 })
    await it.createQueue(QUEUE)
    await it.createQueue(QUICK, { notify: true })
    await it.stop({ graceful: false })
  },
  singles: async () => {
    const it = await boss({ max: request.clients })
    // All connections before the clock starts.
    const touch = () => it.getDb().executeSql('select pg_sleep(0.1)')
    await Promise.all(Array.from({ length: request.clients }, touch))
    await singles('send', (item) => it.send(QUEUE, item))
  },
  bulk: async () => {
    const it = await boss({ max: 1 })
    const startAfter = request.delaySeconds || undefined
    await batches('insert of 1,000', BULK, (items) =>
      it.insert(QUEUE, items.map((data) => ({ data, startAfter })))
    )
  },
  produce: async () => {
    const it = await boss({ max: 1 })
    await produce('send', (item) => it.send(queue, item))
  },
  work: async () => {
    const settings = request.best
      ? request.timeline
        ? 'notify, batchSize 10, pollingIntervalSeconds 0.5'
        : 'batchSize 1,000, localConcurrency 2, burstWhenBatchFull, pollingIntervalSeconds 0.5'
      : 'work() with its defaults (batchSize 1, polls every 2 s)'
    const options = request.best
      ? request.timeline
        ? { batchSize: 10, pollingIntervalSeconds: 0.5 }
        : { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
      : {}
    await work(settings, async (started) => {
      const it = await boss({ max: 10, useListenNotify: request.best && request.timeline })
      await it.work(queue, options, async (jobs) => {
        for (const job of jobs) started(job.data.n)
      })
      return () => it.stop({ graceful: true, timeout: 10000 })
    })
  }
})
