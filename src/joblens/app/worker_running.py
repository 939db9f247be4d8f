"""Earlier name of joblens.app.queue.worker. Workers of joblens 0.1.0 restart once it can be imported."""
