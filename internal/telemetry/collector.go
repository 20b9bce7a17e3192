package telemetry

import (
	"bytes"
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// PathMetrics is where a node serves its metrics.
const PathMetrics = "/metrics"

// Build says what runs.
type Build struct {
	Version string
	Node    string
	Roles   []string
}

// scrapesMax bounds the scrapes that are made at a time.
const scrapesMax = 4

// Handler serves the metrics of a node. Who asks while others do waits in turn, so that none keeps another out; a reader that
// is slow holds no turn.
func Handler(source Source, build Build) http.Handler {
	scrape := promhttp.HandlerFor(registry(source, build), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	turns := make(chan struct{}, scrapesMax)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := page{header: w.Header(), status: http.StatusOK}
		select {
		case turns <- struct{}{}:
			func() {
				defer func() { <-turns }()
				scrape.ServeHTTP(&made, r)
			}()
		case <-r.Context().Done():
			return
		}
		w.WriteHeader(made.status)
		_, _ = w.Write(made.Bytes()) // an error is a client that went away
	})
}

// page is an answer that is made before it is sent.
type page struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }

func registry(source Source, build Build) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newCollector(source, build), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Source tells what a node counts.
type Source interface {
	Metrics(to *Scrape)
}

// collector makes metrics of what a source tells.
type collector struct {
	source Source
	build  Build
	descs  map[string]*prometheus.Desc
}

func newCollector(source Source, build Build) *collector {
	c := &collector{source: source, build: build, descs: map[string]*prometheus.Desc{}}
	for _, m := range metrics {
		c.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- c.descs[m.Name]
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := newScrape()
	s.Put("duly_build_info", 1, cmp.Or(c.build.Version, "unknown"), runtime.Version(), c.build.Node, strings.Join(c.build.Roles, ","))
	c.source.Metrics(s)
	for name, one := range s.told {
		for _, is := range one.series {
			to <- is.metric(c.descs[name], one.kind)
		}
	}
}

// typesMax bounds what is told apart of one metric: types of tasks, their steps by agent, agents, and routes by code.
// typeOther is all others.
const (
	typesMax  = 64
	typeOther = "other"
)

// Scrape takes the values of one scrape. What has one name and the same labels is added up.
type Scrape struct{ told map[string]*told }

// told are the series of a metric.
type told struct {
	Metric
	kind   prometheus.ValueType
	keys   map[string]bool // of the labels that tell a bounded number apart
	series map[string]*series
}

func newScrape() *Scrape {
	s := &Scrape{told: map[string]*told{}}
	for _, m := range metrics {
		kind := prometheus.GaugeValue
		if m.Kind == counter {
			kind = prometheus.CounterValue
		}
		s.told[m.Name] = &told{Metric: m, kind: kind, keys: map[string]bool{}, series: map[string]*series{}}
	}
	return s
}

// series is one value, or the counts of a histogram.
type series struct {
	labels []string
	value  float64
	times
}

func (s *series) metric(desc *prometheus.Desc, kind prometheus.ValueType) prometheus.Metric {
	if s.Bounds == nil {
		return prometheus.MustNewConstMetric(desc, kind, s.value, s.labels...)
	}
	var all int64
	buckets := map[float64]uint64{}
	for i, n := range s.Counts {
		all += n
		if i < len(s.Bounds) {
			buckets[s.Bounds[i].Seconds()] = uint64(all)
		}
	}
	return prometheus.MustNewConstHistogram(desc, uint64(all), s.Sum.Seconds(), buckets, s.labels...)
}

// of is the series of a metric with these labels. The name must be in the list.
func (s *Scrape) of(name string, labels []string) *series {
	m := s.told[name]
	if m.apart > 0 {
		key := strings.Join(labels[:m.apart], "\xff")
		if !m.keys[key] && len(m.keys) >= typesMax {
			key = ""
			labels = slices.Concat(slices.Repeat([]string{typeOther}, m.apart), labels[m.apart:])
		}
		m.keys[key] = true
	}
	key := strings.Join(labels, "\xff")
	if m.series[key] == nil {
		m.series[key] = &series{labels: labels}
	}
	return m.series[key]
}

// Put adds a value to a metric of the list.
func (s *Scrape) Put(name string, value float64, labels ...string) { s.of(name, labels).value += value }

// Count adds a number to a metric of the list.
func (s *Scrape) Count(name string, value int64, labels ...string) {
	s.Put(name, float64(value), labels...)
}

// Flag puts 1 if it is so, and 0 if not.
func (s *Scrape) Flag(name string, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	s.Put(name, value, labels...)
}

// Times adds to a histogram of the list.
func (s *Scrape) Times(name string, bounds []time.Duration, counts []int64, sum time.Duration, labels ...string) {
	s.of(name, labels).plus(&times{bounds, counts, sum})
}

// times are how long something took.
type times struct {
	Bounds []time.Duration // rising
	Counts []int64         // of each bound those that took longer than the one before, and one more for all others
	Sum    time.Duration
}

func (t *times) plus(o *times) {
	if t.Counts == nil {
		t.Bounds, t.Counts = o.Bounds, make([]int64, len(o.Counts))
	}
	for i, n := range o.Counts {
		t.Counts[i] += n
	}
	t.Sum += o.Sum
}

func (t *times) add(took time.Duration) {
	i, _ := slices.BinarySearch(t.Bounds, took)
	t.Counts[i]++
	t.Sum += took
}
