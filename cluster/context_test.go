package cluster

import (
	"context"
	"errors"
	"reflect"
	"testing"
)

// A nil context is refused before anything else: these nodes have not even started.
func TestANilContextIsRefusedByEveryMethod(t *testing.T) {
	n := reflect.ValueOf(new(Node))
	checked := 0
	for i := range n.NumMethod() {
		name, m := n.Type().Method(i).Name, n.Method(i)
		if m.Type().NumIn() == 0 || m.Type().In(0) != reflect.TypeFor[context.Context]() {
			continue
		}
		checked++
		args := make([]reflect.Value, m.Type().NumIn())
		for j := range args {
			args[j] = reflect.Zero(m.Type().In(j))
		}
		err, _ := m.Call(args)[0].Interface().(error)
		if h, ok := m.Call(args)[0].Interface().(Health); ok {
			err = h.Err
		}
		var config *ConfigError
		if !errors.As(err, &config) || config.Field != "ctx" {
			t.Errorf("%s(nil): %v", name, err)
		}
	}
	if checked < 4 {
		t.Errorf("%d methods take a context", checked)
	}
}
