package wakeup

import "testing"

func TestOneKeepsAWakeUp(t *testing.T) {
	o := NewOne()
	o.Wake()
	o.Wake() // becomes one with the first
	<-o
	select {
	case <-o:
		t.Fatal("two wake-ups in a row were received twice")
	default:
	}
}

func TestAllWakesEveryWaiter(t *testing.T) {
	var a All
	first, second := a.Wait(), a.Wait()
	a.Wake()
	<-first
	<-second
	select {
	case <-a.Wait():
		t.Fatal("a wake-up reached a goroutine that began to wait after it")
	default:
	}
}
