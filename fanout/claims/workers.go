package claims

import "sync"

// Workers work the same partitions together.
type Workers []Worker

// Hold implements Worker.
func (ws Workers) Hold(partition int32) {
	for _, w := range ws {
		w.Hold(partition)
	}
}

// LetGo implements Worker.
func (ws Workers) LetGo(partition int32) {
	var all sync.WaitGroup
	for _, w := range ws {
		all.Go(func() { w.LetGo(partition) })
	}
	all.Wait()
}

// Lost implements Worker.
func (ws Workers) Lost(err error) {
	for _, w := range ws {
		w.Lost(err)
	}
}
