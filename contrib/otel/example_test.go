package otelwardmote_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wardmote/wardmote"
	otelwardmote "github.com/wardmote/wardmote/contrib/otel"
	"github.com/wardmote/wardmote/locks"
)

func ExampleTrace() {
	// A program has an exporter of its own, behind trace.WithBatcher.
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := wardmote.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}
	client.AddTrace(otelwardmote.Trace(provider, otelwardmote.Options{}))

	ctx, request := provider.Tracer("shop").Start(ctx, "order")
	err = client.Do(ctx, "stock", func(ctx context.Context, l *locks.Lock) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	request.End()
	if err := client.Close(ctx); err != nil { // after the last function of the Trace
		log.Fatal(err)
	}
	if err := client.Node().Stop(); err != nil {
		log.Fatal(err)
	}
	names := make(map[string]bool)
	for _, span := range exporter.GetSpans() {
		names[span.Name] = true
	}
	fmt.Println("lock.acquire", names["lock.acquire"], "lock.hold", names["lock.hold"])
	// Output: lock.acquire true lock.hold true
}
