// Package dronehttp is the drone delivery with its five services behind plain HTTP, as services are that know nothing of
// Duly: a PUT makes what its path names, 201 the first time and 204 after that; a DELETE takes it back; a GET looks. The
// agents are those of agents.yaml, which `duly serve --roles agents` serves.
package dronehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"duly.dev/duly/examples/drone"
)

// bodyMax bounds what a service is sent, in bytes.
const bodyMax = 8 << 10

// Service is one of the five over HTTP. Its resource is /{step}/{task}/{step}/{round}: the key is the name.
type Service struct {
	backend *drone.Services
	step    drone.Step
	made    sync.Map // by key: a PUT has answered 201
}

// NewService returns the service of a step of the backends, whose books it keeps.
func NewService(backend *drone.Services, step drone.Step) *Service {
	return &Service{backend: backend, step: step}
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ok := strings.CutPrefix(r.URL.Path, "/"+s.step.String()+"/")
	task, _, has := strings.Cut(key, "/")
	if !ok || !has {
		http.Error(w, "want /"+s.step.String()+"/ and a key", http.StatusBadRequest)
		return
	}
	call := drone.Call{Task: task, Key: key, Attempt: 1}
	switch r.Method {
	case http.MethodPut:
		s.put(w, r, call)
	case http.MethodDelete:
		if err := s.backend.Undo(r.Context(), s.step, call); err != nil {
			refuse(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		s.get(w, call)
	default:
		w.Header().Set("Allow", "PUT, DELETE, GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// order is what a PUT may say. A delivery names its drone.
type order struct {
	Drone string `json:"drone"`
}

// dronePrefix is what the name of a drone begins with.
const dronePrefix = "drone-"

func (s *Service) put(w http.ResponseWriter, r *http.Request, call drone.Call) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	var what order
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &what)
	}
	if err == nil && what.Drone != "" {
		var serial uint64
		serial, err = strconv.ParseUint(strings.TrimPrefix(what.Drone, dronePrefix), 16, 32)
		call.Given = uint32(serial)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("body: %v", err), http.StatusUnprocessableEntity)
		return
	}
	serial, err := s.backend.Do(r.Context(), s.step, call)
	if err != nil {
		refuse(w, err)
		return
	}
	name(w, serial)
	if _, again := s.made.LoadOrStore(call.Key, true); again {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (s *Service) get(w http.ResponseWriter, call drone.Call) {
	switch e := s.backend.Books().Entry(call.Task, s.step); {
	case e.Busy:
		w.WriteHeader(http.StatusAccepted)
	case e.Live > 0:
		name(w, e.Serial)
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// name says in a header what was made: a 204 has no body.
func name(w http.ResponseWriter, serial uint32) {
	w.Header().Set("Made", strconv.FormatUint(uint64(serial), 16))
}

// refuse answers a failure by its code.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusBadRequest // a key that is none
	if failed, is := errors.AsType[*drone.ServiceError](err); is {
		code = failed.Code
	}
	http.Error(w, err.Error(), code)
}
