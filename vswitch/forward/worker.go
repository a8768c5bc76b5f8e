package forward

import "context"

// worker moves frames from its ports to any port, run to completion.
type worker struct {
	engine *Engine
	id     int
	drops  dropCounters
}

func newWorker(e *Engine, id int) *worker { return &worker{engine: e, id: id} }

func (w *worker) run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
