package history

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// A cellStep is a call on a cell.
type cellStep struct {
	op    *Op
	maybe bool // a change of unknown outcome
}

var cellModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, _ any) []any {
		value, step := state.(string), input.(cellStep)
		switch {
		case step.op.Kind == SetValue && step.maybe:
			return []any{value, step.op.Value}
		case step.op.Kind == SetValue:
			return []any{step.op.Value}
		case step.op.Kind == Get:
			if step.op.Value != value {
				return nil
			}
			return []any{value}
		case step.op.Old == value && step.maybe:
			return []any{value, step.op.Value}
		case step.maybe:
			return []any{value}
		case step.op.Old == value:
			return []any{step.op.Value}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

// cells checks that the values that callers read, watched and replaced are those of one cell
// per key: no update is lost, and none is told that was not made.
func cells(h *History) (found []Violation, made Searches) {
	byKey := make(map[string][]*Op)
	for i := range h.Ops {
		o := &h.Ops[i]
		if (o.Kind == Update || o.Kind == SetValue) && o.Outcome != Refused || o.Kind == Get && o.Outcome == Done {
			byKey[o.Keys[0]] = append(byKey[o.Keys[0]], o)
		}
	}
	for i := range h.Shows {
		if x := &h.Shows[i]; x.Kind == ShowValue {
			byKey[x.Key] = append(byKey[x.Key], &Op{ID: x.Watch, Kind: Get, Value: x.Value, Call: x.After, Return: x.At, Outcome: Done})
		}
	}
	for _, key := range sortedKeys(byKey) {
		var ops []porcupine.Operation
		var all span
		for i, o := range byKey[key] {
			all.add(o.Call, o.Return)
			step := porcupine.Operation{ClientId: i, Input: cellStep{o, o.Outcome != Done}, Call: o.Call, Return: o.Return}
			if o.Outcome != Done {
				step.Return = math.MaxInt64
			}
			ops = append(ops, step)
		}
		if h.succeeded(all.from, all.to) {
			continue // the cell may have gone back
		}
		made.All++
		switch porcupine.CheckOperationsTimeout(cellModel.ToModel(), ops, h.patience()) {
		case porcupine.Unknown:
			made.Undecided++
		case porcupine.Illegal:
			v := Violation{Check: "cells", Key: key, At: byKey[key][0].Call}
			counts := 0
			for _, o := range byKey[key] {
				v.Until = max(v.Until, o.Return)
				v.IDs = append(v.IDs, o.ID)
				if o.Outcome == Done && o.Kind != Get {
					counts++
				}
			}
			v.Text = fmt.Sprintf("no order of %d calls explains the values, with %d updates told as made", len(ops), counts)
			found = append(found, v)
		}
	}
	return found, made
}

func (h *History) patience() time.Duration {
	if h.Limits.Patience > 0 {
		return time.Duration(h.Limits.Patience)
	}
	return 2 * time.Second
}
