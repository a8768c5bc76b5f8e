package deletequeue

import "sync"

// deletes are the entries that a drain is processing. Their files are not removed meanwhile.
type deletes struct {
	dir directory

	mu   sync.Mutex
	busy map[string]chan struct{} // by file name: closed when the entry's delete ends
}

// begin marks the entry as busy. It returns false if the entry is removed.
func (d *deletes) begin(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !exists(d.dir.path(name)) {
		return false
	}
	d.busy[name] = make(chan struct{})
	return true
}

func (d *deletes) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.busy[name])
	delete(d.busy, name)
}

// remove removes the file of an entry, unless the entry is busy: then it returns the channel that is closed when its
// delete ends.
func (d *deletes) remove(name string) (done <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if done, isBusy := d.busy[name]; isBusy {
		return done, nil
	}
	return nil, d.dir.remove(name)
}
