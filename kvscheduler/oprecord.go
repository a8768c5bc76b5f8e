package kvscheduler

// record begins the record of an operation; values are redacted here, before anybody can see them.
func (r *run) record(o op) OpRecord {
	n := r.g.nodes[o.id]
	rec := OpRecord{Ref: n.ref.String(), Verb: o.verb.String(), Why: r.because(n), Level: int(o.level)}
	if o.verb != Create {
		rec.Old = n.k.redact(n.have)
	}
	if o.verb != Delete {
		rec.New = n.k.redact(n.want)
	}
	return rec
}

// because says why an operation is in the plan.
func (r *run) because(n *node) string {
	switch {
	case r.why == "undo":
		return "undo"
	case n.cause >= 0:
		return "dep:" + r.name(n.cause)
	case n.act == recreate:
		return "recreate"
	case n.drifted:
		return "drift"
	case n.dirty == r.g.epoch:
		return r.why
	}
	for _, e := range n.deps[wanted] {
		t := r.g.nodes[e.to]
		if t.mark == r.g.epoch && (t.changed || t.act != none) {
			return "dep:" + t.ref.String()
		}
	}
	return r.why
}

// weigh estimates the bytes of a record. Encoding each value would cost more than keeping it, so some of each kind stand
// for all.
func (r *run) weigh(rec *Record) int {
	const perRecord, perOp, sample = 300, 200, 64
	size := perRecord + len(rec.Err) + len(rec.Label)
	each := 0
	for i := range rec.Ops {
		o := &rec.Ops[i]
		if i%sample == 0 {
			each = r.weighValue(o.Ref, o.Old) + r.weighValue(o.Ref, o.New)
		}
		size += perOp + len(o.Ref) + len(o.Why) + len(o.Err) + each
	}
	for _, w := range rec.Pending {
		size += 50 + len(w.Ref)
		for _, m := range w.Missing {
			size += 16 + len(m)
		}
	}
	return size
}

func (r *run) weighValue(key string, v any) int {
	ref, err := ParseRef(key)
	if v == nil || err != nil || r.kinds[ref.Kind] == nil {
		return 0
	}
	b, err := r.kinds[ref.Kind].encode(v)
	if err != nil {
		return 0
	}
	return len(b)
}
