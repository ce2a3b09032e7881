package api

import lanewayv1 "github.com/laneway/laneway/api/laneway/v1"

// Procedures returns the names of all methods of all services, the values of the
// procedure label in metrics.
func Procedures() []string {
	var out []string
	services := lanewayv1.File_laneway_v1_laneway_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			out = append(out, "/"+string(services.Get(i).FullName())+"/"+string(methods.Get(j).Name()))
		}
	}
	return out
}
