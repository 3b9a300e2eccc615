-- Who listens, from the first moment on: nothing that is published before a worker starts is lost to it.
select postrider.subscribe('evidence.attach.requests', 'evidence.attach'),
       postrider.subscribe('evidence.failed.requests', 'evidence.attach'),
       postrider.subscribe('evidence.attach.results', 'evidence.notify'),
       postrider.subscribe('evidence.notifications', 'evidence.deliver');
