package membership

import "container/list"

// weighted is a least-recently-used map bounded by the total weight of its
// values. The caller locks.
type weighted[K comparable, V any] struct {
	max   int
	total int
	order *list.List // front: most recent
	items map[K]*list.Element
}

type weightedItem[K comparable, V any] struct {
	key    K
	value  V
	weight int
}

func newWeighted[K comparable, V any](maxWeight int) *weighted[K, V] {
	return &weighted[K, V]{max: maxWeight, order: list.New(), items: make(map[K]*list.Element)}
}

func (w *weighted[K, V]) get(k K) (V, bool) {
	e, ok := w.items[k]
	if !ok {
		var zero V
		return zero, false
	}
	w.order.MoveToFront(e)
	return e.Value.(*weightedItem[K, V]).value, true
}

// put sets a value and its weight and evicts others until the bound holds. A
// value over the bound is not kept.
func (w *weighted[K, V]) put(k K, v V, weight int) {
	w.drop(k)
	if weight > w.max {
		return
	}
	w.items[k] = w.order.PushFront(&weightedItem[K, V]{k, v, weight})
	w.total += weight
	for w.total > w.max {
		w.drop(w.order.Back().Value.(*weightedItem[K, V]).key)
	}
}

func (w *weighted[K, V]) drop(k K) {
	if e, ok := w.items[k]; ok {
		w.total -= e.Value.(*weightedItem[K, V]).weight
		w.order.Remove(e)
		delete(w.items, k)
	}
}
