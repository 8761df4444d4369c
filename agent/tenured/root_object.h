/* Methods of org.tenure.Membership1.Manager that are not in root_object.c itself. */
#pragma once

#include "agent.h"

extern const sd_bus_vtable root_vtable[];

int method_advise_ttl(sd_bus_message *m, void *userdata, sd_bus_error *error);  /* advice.c */
int method_get_metrics(sd_bus_message *m, void *userdata, sd_bus_error *error); /* counters.c */
int method_get_service(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_get_service_entries(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_register_service(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_unregister_service(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_set_tags(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_wait_for_revision(sd_bus_message *m, void *userdata, sd_bus_error *error);
